// The backward of one call as autograd nodes.
#pragma once

#include "csrc/torch_bridge/call.h"

namespace ort::bridge {

// Once, before the first call.
void prepare_nodes();

// Gives the differentiable outputs their history. As in eager one node takes the gradients of what
// one op returned; it leads to the outputs that these pass and to the inputs that they reach, to no
// others; inputs that the same outputs reach hang on a chain of nodes, one a segment, so that their
// gradients stream.
void add_nodes(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
               std::vector<at::Tensor>& outputs);

}  // namespace ort::bridge
