// The pass before partition: what no provider takes whole becomes its parts.
#pragma once

#include "csrc/plan/partition.h"

namespace ort {

// Expands every op that none of the providers takes, in float32 neither, but that has a definition,
// and the parts of that; returns why they refused it.
std::vector<Refusal> expand_unclaimed(Graph& graph, std::span<const Provider* const> providers);

}  // namespace ort
