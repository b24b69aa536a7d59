// Constant folding.
#pragma once

#include <functional>

#include "csrc/graph/schema.h"
#include "csrc/passes/folded_bytes.h"

namespace ort {

// Nodes whose inputs are all constants become constants; the evaluator computes them. Results
// larger than `limit` bytes stay nodes, and so do those that are `kept` and those that `folded` has
// no room for. Returns how many were folded.
using IsKept = std::function<bool(const Node&)>;
size_t fold_constants(Graph& graph, Evaluator& evaluator, FoldedBytes& folded,
                      const IsKept& kept = {}, size_t limit = 64u << 20);

}  // namespace ort
