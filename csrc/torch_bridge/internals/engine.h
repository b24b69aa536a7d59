// Torch's autograd engine: what it knows of the backward that runs in this thread, and backwards
// that it is told to run.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::bridge {

// --- the backward in this thread -----------------------------------------------------------------

int current_backward();  // its number; below 0: none runs
bool keeps_graph();
// Called in this thread when all its nodes have run, and freed uncalled where one has failed.
void at_end_of_backward(std::function<void()> f);

const std::unordered_set<AnyNode*>& nodes_of_backward();
bool is_in_backward(AnyNode* node);  // null is not

// Whether it is for some inputs alone (inputs=).
bool is_for_inputs();
// What it is then to do at a node.
struct Requested {
  bool executes = false;  // run it, or take the gradient that comes to it
  bool visits = false;    // run it
  bool takes = false;     // take that gradient
};
Requested requested_at(const AnyNode* node);  // null: nothing

// --- a backward of its own -----------------------------------------------------------------------

// What comes to `ends` where `gradients` are given to `roots`. `keep`: the graph is left as it is.
std::vector<at::Tensor> run_backward(const EdgeList& roots,
                                     const std::vector<at::Tensor>& gradients, bool keep,
                                     const EdgeList& ends);

// Accumulates into the leaf at `edge`, as a backward that comes there does.
void accumulate(GradientEdge edge, const at::Tensor& gradient);

// The gradients of `inputs` as tensors with a history; undefined where none comes.
std::vector<at::Tensor> differentiable_gradients(const std::vector<at::Tensor>& outputs,
                                                 const std::vector<at::Tensor>& gradients,
                                                 const std::vector<at::Tensor>& inputs);

}  // namespace ort::bridge
