// Nodes of ONNX's op Gradient (ai.onnx.preview.training 1), which ask for gradients inside a graph.
#pragma once

#include "csrc/graph/graph.h"

namespace ort::grad {

// Replaces each such node, those of bodies too, by nodes that compute what it asks for: of each x
// of xs the gradient of the sum of y, at the node's inputs, where xs and zs depend on nothing;
// zeros where y does not depend on x.
void expand_gradient_nodes(Graph& graph);

}  // namespace ort::grad
