// The autograd graph of one run of an operator, kept in an opaque slot of the frame from its
// forward to its backward. Made and used by the kernels.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

namespace ort::aten {

using torch::autograd::variable_list;

class OperatorHistory {
 public:
  // Makes each of `inputs` that `needed` names require a gradient, as a tensor in the middle of a
  // graph: nothing of the history holds its memory unless the operator's derivative does.
  OperatorHistory(variable_list& inputs, const std::vector<int64_t>& needed);
  // Where the backward starts: the outputs of the operator.
  void record(const variable_list& outputs);

  // The gradients of the needed inputs from those of the outputs (undefined: zero); undefined where
  // none flows. `keep`: the history will be asked again.
  variable_list gradients(const variable_list& output_gradients, bool keep) const;

 private:
  torch::autograd::edge_list roots_, ends_;
};

}  // namespace ort::aten
