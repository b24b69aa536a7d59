// The autograd graph of one run of an operator, kept in an opaque slot of the frame from its
// forward to its backward. Made and used by the kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::aten {

using Tensors = std::vector<at::Tensor>;

class OperatorHistory {
 public:
  // Makes each of `inputs` that `needed` names require a gradient, as a tensor in the middle of a
  // graph: nothing of the history holds its memory unless the operator's derivative does.
  OperatorHistory(Tensors& inputs, const std::vector<int64_t>& needed);
  // Where the backward starts: the outputs of the operator.
  void record(const Tensors& outputs);

  // The gradients of the needed inputs from those of the outputs (undefined: zero); undefined where
  // none flows. `keep`: the history will be asked again.
  Tensors gradients(const Tensors& output_gradients, bool keep) const;

 private:
  std::vector<bridge::GradientEdge> roots_;
  bridge::EdgeList ends_;
};

}  // namespace ort::aten
