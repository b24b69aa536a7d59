// torch::autograd::Node subclasses. AccumulateGrad nodes have the engine's highest priority, so a
// parameter's hook fires before the next segment runs.
#include "csrc/torch_bridge/nodes.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "csrc/torch_bridge/make_node.h"

namespace ort::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

class Segment : public Node {
 public:
  Segment(std::shared_ptr<Call> call, size_t index) : call_(std::move(call)), index_(index) {}

  std::string name() const override { return "ORTModuleBackward" + std::to_string(index_); }

  void will_release_variables() override { releasing_ = true; }
  void release_variables() override {
    if (call_ && index_ + 1 == count_) call_->release();
  }

  variable_list apply(variable_list&& gradients) override {
    check(!at::GradMode::is_enabled(),
          "ORTModule does not support create_graph=True: the gradient of a gradient is not "
          "built; run this module in eager, or call backward without create_graph");
    variable_list results(num_outputs());
    if (std::none_of(gradients.begin(), gradients.end(),
                     [](const at::Tensor& g) { return g.defined(); }))
      return results;
    if (index_ == 0) call_->begin_backward(gather(gradients), !releasing_);
    for (auto& [w, gradient] : call_->run_segment(index_))
      results[places_.at(w)] = std::move(gradient);
    if (index_ + 1 == count_)
      call_->end_backward();
    else
      results[0] = token();
    return results;
  }

  // Where the gradient of wrt[w] goes among this node's results.
  void place(size_t w) { places_[w] = places_.size() + (index_ + 1 < count_ ? 1 : 0); }
  void set_count(size_t count) { count_ = count; }
  void add_output(size_t graph_output) { outputs_.push_back(graph_output); }
  static at::Tensor token() { return empty({1}, at::kFloat).zero_(); }

 private:
  // By graph output; the node's inputs are its differentiable outputs only.
  std::vector<at::Tensor> gather(const variable_list& gradients) const {
    std::vector<at::Tensor> by_output(call_->program().n_outputs());
    for (size_t i = 0; i < outputs_.size(); ++i) by_output[outputs_[i]] = gradients.at(i);
    return by_output;
  }

  std::shared_ptr<Call> call_;
  size_t index_, count_ = 1;
  std::map<size_t, size_t> places_;
  std::vector<size_t> outputs_;
  bool releasing_ = false;
};

}  // namespace

void attach(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
            std::vector<at::Tensor>& outputs) {
  std::vector<decltype(make_node<Segment>(call, size_t{}))> nodes;
  for (size_t i = 0; i < call->n_segments(); ++i) {
    nodes.push_back(make_node<Segment>(call, i));
    nodes.back()->set_count(call->n_segments());
  }
  // The last node first: a node's edges may not change once it has a parent.
  for (size_t i = nodes.size(); i-- > 0;) {
    if (i + 1 < nodes.size()) {
      nodes[i + 1]->add_input_metadata(Segment::token());
      nodes[i]->add_next_edge(Edge(nodes[i + 1], 0));
    }
    for (const size_t w : call->handed()[i]) {
      nodes[i]->place(w);
      nodes[i]->add_next_edge(torch::autograd::impl::gradient_edge(inputs[call->shared().wrt[w]]));
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!call->shared().differentiable[i] || !outputs[i].is_floating_point()) continue;
    nodes[0]->add_output(i);
    const auto number = nodes[0]->add_input_metadata(outputs[i]);
    torch::autograd::impl::set_gradient_edge(outputs[i], Edge(nodes[0], number));
  }
}

}  // namespace ort::bridge
