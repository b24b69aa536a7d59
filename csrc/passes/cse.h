// Common subexpression elimination.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// A node with the op, attributes and inputs of an earlier one becomes that one. Never after stash:
// it would undo recomputation. Before differentiation what narrows a float stays apart: each
// reader's gradient is then added up in the wider dtype. Returns how many were merged.
enum class Narrowing { merged, apart };
size_t merge_equal(Graph& graph, Narrowing narrowing = Narrowing::merged);

}  // namespace ort
