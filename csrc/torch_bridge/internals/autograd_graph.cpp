// Of torch: the node of a leaf (torch/csrc/autograd/functions/accumulate_grad.h), whose member
// `variable` is the leaf.
#include "csrc/torch_bridge/internals/autograd_graph.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace ort::bridge {

const at::Tensor* leaf_of(const AnyNode& node) {
  const auto* accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  return accumulates ? &accumulates->variable : nullptr;
}

}  // namespace ort::bridge
