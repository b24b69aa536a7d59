// Horizontal fusion: products with few columns over one operand.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// Nodes that read one operand become one node where their entries say how (OpSchema::Siblings) and
// each is thin: for so few columns reading the operand costs as much as multiplying it. Such are
// the adapters of a layer's projections, forward and backward. Never after stash. Returns how many
// nodes became parts of another.
size_t join_siblings(Graph& graph);

}  // namespace ort
