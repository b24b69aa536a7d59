// Reverse-mode differentiation, graph to graph. The rules live with the ops.
#pragma once

#include <span>

#include "csrc/graph/schema.h"

namespace ort::grad {

struct Gradients {
  std::vector<int> of_wrt;   // the graph output of each, or -1
  std::vector<int> of_cuts;  // likewise
};

// For each graph output named in `outputs` (by index) adds an input "d_<name>" (role gradient), and
// for each value of `wrt` a graph output "d_<its name>"; a value that no output depends on gives
// none. An op without a gradient rule is replaced by its definition; one that has neither is an
// error naming the op and its place in the model. At each of `cuts`, which are among `outputs`, the
// flow stops: what the other outputs add to its gradient is a graph output "cut_<name>", and its
// input "d_<name>" is the whole of it.
Gradients differentiate(Graph& graph, std::span<const size_t> outputs, std::span<const ValueId> wrt,
                        std::span<const size_t> cuts = {});

// What each of `wrt` gets of dy, the gradient of y; absent where y does not depend on it. The nodes
// go before `before`.
std::vector<Value> gradients_of(Graph& graph, Value y, Value dy, std::span<const ValueId> wrt,
                                Node* before);

// The sum of two gradients of one value.
Value sum_of(Value a, Value b);

// Which graph outputs depend on `wrt` through inputs that gradients flow to: those that require a
// gradient in torch's sense.
std::vector<bool> depends(Graph& graph, std::span<const ValueId> wrt);

}  // namespace ort::grad
