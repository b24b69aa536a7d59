// What the engine says of the backward that runs in this thread, read for a call's nodes.
#include "csrc/torch_bridge/autograd/requests.h"

#include <algorithm>

#include "csrc/torch_bridge/internals/engine.h"

namespace ort::bridge {

GradientEdge Nodes::target(size_t w) const {
  const AnyNode* target = targets[w];
  if (!target) return {};
  return GradientEdge::into(const_cast<AnyNode&>(*target), target_places[w]);
}

std::vector<GradientEdge> Nodes::receiving(const AutogradHistory& history) const {
  std::vector<GradientEdge> edges(receivers.size());
  for (const Origin& origin : history.origins)
    for (size_t result = 0; result < origin.outputs.size(); ++result)
      if (const auto& output = origin.outputs[result]; output && receivers[*output])
        edges[*output] =
            GradientEdge::into(*receivers[*output].load(), static_cast<uint32_t>(result));
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
  if (!is_for_inputs()) return;
  inputs_.emplace();
  for (size_t w = 0; w < wrt.size(); ++w)
    if (requested_at(nodes_.targets[w]).executes) inputs_->push_back(wrt[w]);
  std::sort(inputs_->begin(), inputs_->end());
}

bool Requests::is_asked(size_t output) const {
  AnyNode* node = nodes_.receivers[output];
  if (!is_in_backward(node)) return false;
  const HooksOf hooks = hooks_of(*node);
  return hooks.on_tensor || hooks.retains_grad || hooks.before ||
         (is_for_inputs() && requested_at(node).takes);
}

bool Requests::visits(size_t output) const {
  AnyNode* node = nodes_.receivers[output];
  return is_in_backward(node) && (!is_for_inputs() || requested_at(node).visits);
}

bool Requests::accumulates(size_t w) const {
  const AnyNode* node = nodes_.targets[w];
  return node && leaf_of(*node) && (!is_for_inputs() || requested_at(node).visits);
}

bool Requests::executes(const UsedUp& node) const {
  if (!inputs_) return true;
  return std::any_of(node.reaches.begin(), node.reaches.end(),
                     [&](size_t input) { return contains(*inputs_, input); }) ||
         std::any_of(
             node.behind.begin(), node.behind.end(),
             [&](size_t output) { return requested_at(nodes_.receivers[output]).executes; }) ||
         std::any_of(node.made.begin(), node.made.end(),
                     [&](size_t output) { return visits(output); });
}

}  // namespace ort::bridge
