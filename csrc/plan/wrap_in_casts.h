// The pass before partition for halves: what is only run in float32 gets casts around it.
#pragma once

#include "csrc/plan/partition.h"

namespace ort {

// Whether the first provider that runs the node, as it is or in float32, does so in float32 alone.
bool only_in_float32(const Node& node, std::span<const Provider* const> providers);

// Such a node reads its bfloat16 and float16 inputs through casts to float32, and what it made in
// that dtype is cast back. Between two of them the value stays float32, where nobody else reads the
// half and both run in one segment. Returns why the node was refused as it was.
std::vector<Refusal> wrap_in_casts(Graph& graph, std::span<const Provider* const> providers);

}  // namespace ort
