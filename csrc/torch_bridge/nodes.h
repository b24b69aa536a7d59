// The backward of one call as autograd nodes.
#pragma once

#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

// Gives the differentiable outputs their history. A node per output takes its gradient and leads to
// the outputs that it passes and to the inputs that it reaches, to no others; inputs that the same
// outputs reach hang on a chain of nodes, one a segment, so that their gradients stream.
void attach(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
            std::vector<at::Tensor>& outputs);

}  // namespace ort::bridge
