// Common subexpression elimination.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// A node with the op, attributes and inputs of an earlier one becomes that one. Never after stash:
// it would undo recomputation. Returns how many were merged.
size_t merge_equal(Graph& graph);

}  // namespace ort
