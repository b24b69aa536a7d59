// Which nodes are forward, and in which segment of the backward the others run.
#pragma once

#include <span>

#include "csrc/graph/graph.h"

namespace ort::grad {

// The first `n_forward` graph outputs are the forward's: what they need stays forward (segment -1). The
// others are gradients, in groups: a segment ends when `segment_bytes` of them are complete, in the
// order in which the backward completes them. `bytes` gives the size of each gradient.
// Returns the segment of each gradient output.
std::vector<int> assign_segments(Graph& graph, size_t n_forward, size_t segment_bytes, std::span<const size_t> bytes);

}  // namespace ort::grad
