// The engine's own tables of the backward that runs in this thread.
#include "csrc/torch_bridge/autograd/requests.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace ort::bridge {
namespace {

using torch::autograd::Node;

bool has_requests() {
  const auto* requests = torch::autograd::get_current_graph_task_exec_info();
  return requests && !requests->empty();
}

// With inputs=: what is to be done at a node. Null: nothing.
const torch::autograd::GraphTask::ExecInfo* request(const Node* node) {
  const auto& requests = *torch::autograd::get_current_graph_task_exec_info();
  const auto found = requests.find(const_cast<Node*>(node));
  return found == requests.end() ? nullptr : &found->second;
}

bool is_requested(const Node* node) {
  const auto* info = node ? request(node) : nullptr;
  return info && info->should_execute();
}

bool in_graph(Node* node) {
  return node && torch::autograd::get_current_graph_task_nodes_in_graph()->count(node);
}

}  // namespace

torch::autograd::Edge Nodes::target(size_t w) const {
  const Node* target = targets[w];
  if (!target) return {};
  return {const_cast<Node*>(target)->getptr(), target_places[w]};
}

std::vector<torch::autograd::Edge> Nodes::receiving(const AutogradHistory& history) const {
  std::vector<torch::autograd::Edge> edges(receivers.size());
  for (const Origin& origin : history.origins)
    for (size_t result = 0; result < origin.outputs.size(); ++result)
      if (const auto& output = origin.outputs[result]; output && receivers[*output])
        edges[*output] = {receivers[*output].load()->getptr(), static_cast<uint32_t>(result)};
  return edges;
}

Requests::Requests(const AutogradHistory& history, const Indices& wrt, const Nodes& nodes)
    : nodes_(nodes) {
  const auto& outputs = history.outputs;
  for (size_t h = 0; h < outputs.size(); ++h)
    if (is_asked(h) && std::any_of(outputs.begin(), outputs.end(), [&](const auto& output) {
          return output && contains(output->through, h);
        }))
      cuts_.push_back(h);
  if (!has_requests()) return;
  inputs_.emplace();
  for (size_t w = 0; w < wrt.size(); ++w)
    if (is_requested(nodes_.targets[w])) inputs_->push_back(wrt[w]);
  std::sort(inputs_->begin(), inputs_->end());
}

bool Requests::is_asked(size_t output) const {
  Node* node = nodes_.receivers[output];
  if (!in_graph(node)) return false;
  if (!node->tensor_pre_hooks().empty() || !node->retains_grad_hooks().empty() ||
      !node->pre_hooks().empty())
    return true;
  const auto* info = has_requests() ? request(node) : nullptr;
  return info && info->captures_;
}

bool Requests::visits(size_t output) const {
  Node* node = nodes_.receivers[output];
  if (!in_graph(node)) return false;
  const auto* info = has_requests() ? request(node) : nullptr;
  return !has_requests() || (info && info->needed_);
}

bool Requests::executes(const UsedUp& node) const {
  if (!inputs_) return true;
  return std::any_of(node.reaches.begin(), node.reaches.end(),
                     [&](size_t input) { return contains(*inputs_, input); }) ||
         std::any_of(node.behind.begin(), node.behind.end(),
                     [&](size_t output) { return is_requested(nodes_.receivers[output]); }) ||
         std::any_of(node.made.begin(), node.made.end(),
                     [&](size_t output) { return visits(output); });
}

}  // namespace ort::bridge
