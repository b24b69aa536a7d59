// Keep or recompute: what the backward reads of the forward.
#pragma once

#include "csrc/graph/graph.h"

namespace ort::grad {

// Clones into the backward the forward nodes that cost less than keeping their results: views,
// constants, casts and element-wise nodes whose operands the backward has anyway, and everything
// marked `recompute`. Runs after assign_segments; CSE must not run afterwards. Returns how many
// were cloned.
size_t recompute_cheap(Graph& graph);

}  // namespace ort::grad
