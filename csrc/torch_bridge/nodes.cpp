// torch::autograd::Node subclasses. AccumulateGrad nodes have the engine's highest priority, so a
// parameter's hook fires before the next segment runs; among the others, what was made last comes
// first: an output's node before those that hand over, an earlier segment before a later one.
#include "csrc/torch_bridge/nodes.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "csrc/torch_bridge/backward.h"
#include "csrc/torch_bridge/make_node.h"
#include "csrc/torch_bridge/surroundings.h"

namespace ort::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Takes the gradient of one output.
class Receiver : public Node {
 public:
  Receiver(std::shared_ptr<Backward> backward, size_t output)
      : backward_(std::move(backward)), output_(output) {
    backward_->set_receiver(output_, this);
  }
  ~Receiver() override { backward_->set_receiver(output_, nullptr); }

  std::string name() const override { return "ORTModuleBackward"; }

  variable_list apply(variable_list&& gradients) override {
    check(!at::GradMode::is_enabled(),
          "ORTModule does not support create_graph=True: the gradient of a gradient is not "
          "built; run this module in eager, or call backward without create_graph");
    check(post_hooks().empty(),
          "a hook on the grad_fn of a module's output would get what eager's own node returns, "
          "which ORTModule has not; use Tensor.register_hook or grad_fn.register_prehook, or call "
          "the "
          "module within `with model.eager():`");
    const c10::impl::ExcludeDispatchKeyGuard plain(kTransforms);
    backward_->receive(output_, gradients.at(0));
    variable_list results(num_outputs());
    for (size_t k = 0; k < passed_.size(); ++k) results[k] = backward_->passed_on(passed_[k]);
    return results;
  }

  // The next edge leads to this output's node.
  void add_passed(size_t output) { passed_.push_back(output); }

 private:
  std::shared_ptr<Backward> backward_;
  size_t output_;
  std::vector<size_t> passed_;
};

// Hands over the gradients of some inputs of a group, after the segment that completes them.
class HandOver : public Node {
 public:
  HandOver(std::shared_ptr<Backward> backward, size_t group, size_t segment, bool has_next)
      : backward_(std::move(backward)), group_(group), segment_(segment), has_next_(has_next) {}

  std::string name() const override { return "ORTModuleBackward" + std::to_string(segment_); }

  variable_list apply(variable_list&&) override {
    const c10::impl::ExcludeDispatchKeyGuard plain(kTransforms);
    variable_list results(num_outputs());
    std::vector<at::Tensor> gradients = backward_->hand_over(group_, wrt_);
    std::move(gradients.begin(), gradients.end(), results.begin() + (has_next_ ? 1 : 0));
    return results;
  }

  void add(size_t w) { wrt_.push_back(w); }

 private:
  std::shared_ptr<Backward> backward_;
  size_t group_, segment_;
  bool has_next_;
  Indices wrt_;
};

using HandOvers = std::vector<decltype(make_node<HandOver>(std::shared_ptr<Backward>(), size_t{},
                                                           size_t{}, bool{}))>;

// By segment and group: positions in wrt. What the program gives no gradient comes last.
std::map<std::pair<size_t, size_t>, Indices> assign(const Call& call) {
  std::map<std::pair<size_t, size_t>, Indices> result;
  const std::vector<Group>& groups = call.shared().topology.groups;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const size_t w : groups[g].wrt) {
      const int output = call.program().gradient_outputs()[w];
      const size_t last = call.plan().segment_ends.size() - 1;
      result[{output < 0 ? last : call.segment_of(output), g}].push_back(w);
    }
  return result;
}

// The first node of each group's chain. The last are made first: a node's edges may not change once
// it has a parent.
HandOvers chains(const std::shared_ptr<Backward>& backward, const std::vector<at::Tensor>& inputs) {
  const Call& call = backward->call();
  HandOvers first(call.shared().topology.groups.size());
  const auto parts = assign(call);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const auto [segment, group] = part->first;
    auto node = make_node<HandOver>(backward, group, segment, first[group] != nullptr);
    node->add_input_metadata(Node::undefined_input());
    if (first[group]) node->add_next_edge(Edge(first[group], 0));
    for (const size_t w : part->second) {
      node->add(w);
      auto edge = torch::autograd::impl::gradient_edge(inputs[call.shared().wrt[w]]);
      backward->set_target(w, edge.function.get());
      node->add_next_edge(std::move(edge));
    }
    first[group] = std::move(node);
  }
  return first;
}

}  // namespace

void attach(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
            std::vector<at::Tensor>& outputs) {
  const auto backward = std::make_shared<Backward>(call);
  const Topology& topology = call->shared().topology;
  const HandOvers first = chains(backward, inputs);
  std::vector<decltype(make_node<Receiver>(backward, size_t{}))> receivers(outputs.size());
  for (auto i = topology.order.rbegin(); i != topology.order.rend(); ++i) {
    if (!outputs[*i].is_floating_point()) continue;
    auto node = make_node<Receiver>(backward, *i);
    for (const size_t h : topology.next[*i])
      if (receivers[h]) {
        node->add_passed(h);
        node->add_next_edge(Edge(receivers[h], 0));
      }
    for (size_t g = 0; g < first.size(); ++g)
      if (contains(topology.groups[g].sources, *i)) node->add_next_edge(Edge(first[g], 0));
    node->add_input_metadata(outputs[*i]);
    torch::autograd::impl::set_gradient_edge(outputs[*i], Edge(node, 0));
    receivers[*i] = std::move(node);
  }
}

}  // namespace ort::bridge
