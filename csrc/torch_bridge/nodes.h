// The backward of one call as a chain of autograd nodes, one a segment.
#pragma once

#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

// Gives the differentiable outputs their history: the first node takes their gradients, each node
// returns the gradients that its segment completes and passes a token to the next.
void attach(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
            std::vector<at::Tensor>& outputs);

}  // namespace ort::bridge
