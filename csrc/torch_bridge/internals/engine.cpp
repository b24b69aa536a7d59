// Of torch, in every version from 2.11 on: Engine::queue_callback and execute
// (torch/csrc/autograd/engine.h), the functions that ask for the current graph task, and its
// ExecInfo (graph_task.h). torch::autograd::grad is public (torch/autograd.h).
#include "csrc/torch_bridge/internals/engine.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace ort::bridge {

namespace autograd = torch::autograd;

int current_backward() {
  return autograd::get_current_graph_task_id();
}

bool keeps_graph() {
  return autograd::get_current_graph_task_keep_graph();
}

void at_end_of_backward(std::function<void()> f) {
  autograd::Engine::get_default_engine().queue_callback(std::move(f));
}

const std::unordered_set<AnyNode*>& nodes_of_backward() {
  return *autograd::get_current_graph_task_nodes_in_graph();
}

bool is_in_backward(AnyNode* node) {
  return node && nodes_of_backward().count(node);
}

bool is_for_inputs() {
  const auto* requests = autograd::get_current_graph_task_exec_info();
  return requests && !requests->empty();
}

Requested requested_at(const AnyNode* node) {
  if (!node) return {};
  const auto& requests = *autograd::get_current_graph_task_exec_info();
  const auto found = requests.find(const_cast<AnyNode*>(node));
  if (found == requests.end()) return {};
  const auto& info = found->second;
  return {info.should_execute(), info.needed_, info.captures_ != nullptr};
}

std::vector<at::Tensor> run_backward(const EdgeList& roots,
                                     const std::vector<at::Tensor>& gradients, bool keep,
                                     const EdgeList& ends) {
  constexpr bool kCreateGraph = false, kAccumulate = false;
  return autograd::Engine::get_default_engine().execute(roots.edges_, gradients, keep, kCreateGraph,
                                                        kAccumulate, ends.edges_);
}

void accumulate(GradientEdge edge, const at::Tensor& gradient) {
  constexpr bool kKeep = true, kAccumulate = true;
  const bool create_graph = at::GradMode::is_enabled();
  EdgeList roots;
  roots.add(std::move(edge));
  autograd::Engine::get_default_engine().execute(roots.edges_, {gradient}, kKeep, create_graph,
                                                 kAccumulate, {});
}

std::vector<at::Tensor> differentiable_gradients(const std::vector<at::Tensor>& outputs,
                                                 const std::vector<at::Tensor>& gradients,
                                                 const std::vector<at::Tensor>& inputs) {
  return autograd::grad(outputs, inputs, gradients, /*retain_graph=*/true, /*create_graph=*/true,
                        /*allow_unused=*/true);
}

}  // namespace ort::bridge
