// The order of the steps.
#pragma once

#include "csrc/plan/partition.h"

namespace ort {

// Indices of claims, producers before users, by segment first and program order second.
std::vector<size_t> schedule(const Graph& graph, const std::vector<Claim>& claims);

}  // namespace ort
