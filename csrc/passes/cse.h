// Common subexpression elimination.
#pragma once

#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

// A node with the op, attributes and inputs of an earlier one becomes that one. Never after stash:
// it would undo recomputation. Returns how many were merged.
size_t merge_equal(Graph& graph);
// The same before differentiation with respect to `wrt`: what a gradient passes stays apart, as
// each twin's gradient goes its own way in eager. Of the sum of two a factor that is infinite makes
// something else than of each (inf - inf), and a sum of halves rounds.
size_t merge_undifferentiated(Graph& graph, const std::vector<ValueId>& wrt);

}  // namespace ort
