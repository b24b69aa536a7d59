// The invariants of a graph, checked after each pass in checked mode.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// Throws naming the first broken invariant; `after` names the pass.
void verify(const Graph& graph, std::string_view after);

}  // namespace ort
