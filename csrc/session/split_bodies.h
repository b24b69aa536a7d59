// The gradient of a body runs apart from its forward, which has kept for it what it reads.
#pragma once

#include "csrc/passes/pipeline.h"

namespace ort {

// What an input of a backward half is: an item of the trip's stash; an input of the body, whose
// value the gradient's node is given; one of the sizes that are the last item of the stash; a
// gradient that the caller gives.
enum class Read : int64_t { stash, input, size, gradient };
// What an item of the stash is: an input of the forward half, or an output.
enum class Kept : int64_t { input, output };

// For each gradient of an op that owns bodies: optimises the joint graph of each body, chooses what
// its forward keeps as a minimum cut over bytes, and splits it there. The forward node gets the one
// half as "<body>_recorded", with "<body>_kept": pairs (Kept, index); the gradient's node the other
// in place of the joint graph, with "<body>_reads": pairs (Read, index) for each of its inputs.
void split_bodies(Graph& graph, PassOptions& passes);

}  // namespace ort
