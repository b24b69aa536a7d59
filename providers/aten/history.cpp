// Recording an operator and running torch's autograd engine over it.
#include "providers/aten/history.h"

#include "csrc/torch_bridge/internals/engine.h"

namespace ort::aten {
namespace {

// The end of a history: gradients are caught on the way into it, it never runs.
class End : public bridge::AutogradNode {
 public:
  Gradients apply(Gradients&&) override { return {}; }
};

}  // namespace

OperatorHistory::OperatorHistory(Tensors& inputs, const std::vector<int64_t>& needed) {
  if (needed.empty()) return;
  const auto end = bridge::make_node<End>();
  for (const int64_t i : needed) {
    at::Tensor& input = inputs[static_cast<size_t>(i)];
    const bridge::GradientEdge edge(end, end->add_input(input));
    edge.lead(input);
    ends_.add(edge);
  }
}

void OperatorHistory::record(const Tensors& outputs) {
  for (const at::Tensor& output : outputs)
    roots_.push_back(output.defined() && output.requires_grad() ? bridge::GradientEdge::of(output)
                                                                : bridge::GradientEdge());
}

Tensors OperatorHistory::gradients(const Tensors& output_gradients, bool keep) const {
  bridge::EdgeList roots;
  Tensors given;
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (!roots_[i].is_valid() || !output_gradients[i].defined()) continue;
    roots.add(roots_[i]);
    given.push_back(output_gradients[i]);
  }
  if (roots.empty()) return Tensors(ends_.size());
  return bridge::run_backward(roots, given, keep, ends_);
}

}  // namespace ort::aten
