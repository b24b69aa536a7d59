// The order in which torch's engine accumulates gradients: that of eager's graph is found by going
// through it as the engine would, and ours hands over its gradients so that it comes out the same.
// Hooks on parameters see it, and so does who reads gradients after one of them raised.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "csrc/torch_bridge/autograd/history.h"

namespace ort::bridge {

// The leaves behind `outputs`, in the order in which a backward of all of them comes to each.
std::vector<at::Tensor> accumulated(const std::vector<at::Tensor>& outputs);

// The order in which a node has to hand over `wanted` for the engine to accumulate it so.
// `has_next`: another node goes before them.
Indices handed_over_for(const Indices& wanted, bool has_next);

}  // namespace ort::bridge
