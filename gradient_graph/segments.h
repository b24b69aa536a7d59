// Which nodes are forward, and in which segment of the backward the others run.
#pragma once

#include <span>

#include "csrc/graph/graph.h"

namespace ort::grad {

// The first `n_forward` graph outputs are the forward's: what they need stays forward (segment -1).
// The others are gradients, in groups: a segment ends when `segment_bytes` of them are complete, in
// the order in which the backward completes them. `bytes` gives the size of each gradient. Returns
// the segment of each gradient output.
//
// `late`: graph inputs that are given one after the other while the backward runs. What depends on
// the k-th of them runs in segments of its own, after all that depends on the ones before alone.
std::vector<int> assign_segments(Graph& graph, size_t n_forward, size_t segment_bytes,
                                 std::span<const size_t> bytes, std::span<const ValueId> late = {});

// A gradient is handed over only when the backward no longer reads its input, under any view: a
// hook may then change the parameter in place, as it may in eager. `wrt`: the input of each.
void wait_for_readers(const Graph& graph, std::span<const ValueId> wrt, std::vector<int>& segments);

}  // namespace ort::grad
