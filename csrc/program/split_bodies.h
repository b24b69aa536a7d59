// The gradient of a body runs apart from its forward, which has kept for it what it reads.
#pragma once

#include "csrc/passes/pipeline.h"

namespace ort {

// For each gradient of an op that owns bodies: splits the joint graph of each body (split.h). The
// forward node gets the one half as "<body>_recorded", with "<body>_kept": pairs (Kept, index); the
// gradient's node the other in place of the joint graph, with "<body>_reads": pairs (Read, index).
void split_bodies(Graph& graph, PassOptions& passes);

}  // namespace ort
