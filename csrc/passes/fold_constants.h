// Constant folding.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

// Nodes whose inputs are all constants become constants; the evaluator computes them. Results
// larger than `limit` bytes stay nodes. Returns how many were folded.
size_t fold_constants(Graph& graph, Evaluator& evaluator, size_t limit = 64u << 20);

}  // namespace ort
