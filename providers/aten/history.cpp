// Recording an operator and running torch's autograd engine over it.
#include "providers/aten/history.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "csrc/torch_bridge/autograd/make_node.h"

namespace ort::aten {
namespace {

// The end of a history: gradients are caught on the way into it, it never runs.
class End : public torch::autograd::Node {
 public:
  variable_list apply(variable_list&&) override { return {}; }
};

}  // namespace

OperatorHistory::OperatorHistory(variable_list& inputs, const std::vector<int64_t>& needed) {
  if (needed.empty()) return;
  const auto end = bridge::make_node<End>();
  for (const int64_t i : needed) {
    at::Tensor& input = inputs[static_cast<size_t>(i)];
    ends_.emplace_back(end, end->add_input_metadata(input));
    torch::autograd::impl::set_gradient_edge(input, ends_.back());
  }
}

void OperatorHistory::record(const variable_list& outputs) {
  for (const at::Tensor& output : outputs)
    roots_.push_back(output.defined() && output.requires_grad()
                         ? torch::autograd::impl::gradient_edge(output)
                         : torch::autograd::Edge());
}

variable_list OperatorHistory::gradients(const variable_list& output_gradients, bool keep) const {
  torch::autograd::edge_list roots;
  variable_list given;
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (!roots_[i].is_valid() || !output_gradients[i].defined()) continue;
    roots.push_back(roots_[i]);
    given.push_back(output_gradients[i]);
  }
  if (roots.empty()) return variable_list(ends_.size());
  constexpr bool kCreateGraph = false, kAccumulate = false;
  return torch::autograd::Engine::get_default_engine().execute(roots, given, keep, kCreateGraph,
                                                               kAccumulate, ends_);
}

}  // namespace ort::aten
