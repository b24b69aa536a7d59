// The two kinds of nodes that a call has. AccumulateGrad nodes have the engine's highest priority,
// so a parameter's hook fires before the next segment runs; among the others, what was made last
// comes first: an output's node before those that hand over, an earlier segment before a later one.
#include "csrc/torch_bridge/autograd/nodes.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "csrc/torch_bridge/autograd/backward.h"
#include "csrc/torch_bridge/internals/autograd_graph.h"
#include "csrc/torch_bridge/internals/engine.h"
#include "csrc/torch_bridge/internals/modes.h"
#include "csrc/torch_bridge/internals/python_node.h"

namespace ort::bridge {
namespace {

constexpr const char* kNoHook =
    "a hook on the grad_fn of a module's output would get what eager's own node returns, which "
    "ORTModule has not; use Tensor.register_hook or grad_fn.register_prehook, or call the module "
    "within `with model.eager():`";

// A node that is called by itself is no backward.
void check_called_by_engine() {
  check(current_backward() >= 0,
        "an autograd node of ORTModule cannot be called; use torch.autograd.grad, or call the "
        "module within `with model.eager():`");
}

// The engine takes batched gradients apart by itself; torch, which runs under create_graph, has its
// transforms for that.
bool is_run_by_the_engine() {
  return !at::GradMode::is_enabled();
}

// Errors that torch has a type of its own for.
template <class F>
AutogradNode::Gradients in_torchs_terms(F&& f) {
  try {
    return f();
  } catch (const OutOfMemory& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
}

// Takes the gradients of the outputs that one node of eager's made.
class Receiver : public AutogradNode {
 public:
  Receiver(std::shared_ptr<Backward> backward, const Origin& origin, Indices passed)
      : backward_(std::move(backward)), origin_(origin), passed_(std::move(passed)) {
    set_receivers(this);
  }
  ~Receiver() override { set_receivers(nullptr); }

  std::string name() const override { return "ORTModuleBackward"; }

  Gradients apply(Gradients&& gradients) override {
    check_called_by_engine();
    check(!has_hook_after(), "{}", kNoHook);
    const WithoutTransforms plain(is_run_by_the_engine());
    if (leads_into_torchs_ && !is_in_torchs_now()) leave_torchs_for_now();
    Gradients results;
    try {
      results = in_torchs_terms([&] {
        return backward_->receive(origin_, gradients, leads_into_torchs_ ? Indices{} : passed_);
      });
    } catch (...) {
      backward_->fail_at(origin_);
      throw;
    }
    if (leads_into_torchs_) return std::move(gradients);
    results.resize(num_outputs());
    return results;
  }

  // By result: from now on each goes along the edge of its output in a second run.
  void lead_into(const std::vector<at::Tensor>& outputs) {
    EdgeList edges;
    for (const auto& output : origin_.outputs)
      edges.add(output && outputs[*output].defined() ? GradientEdge::of(outputs[*output])
                                                     : GradientEdge());
    if (leads_into_torchs_) return exchange_next(edges);
    others_ = std::move(edges);
    turn();
  }

 private:
  // A backward that had begun before does not know the other edges.
  bool is_in_torchs_now() {
    bool all = true;
    for_next(*this, [&](AnyNode* next) { all = all && is_in_backward(next); });
    return all;
  }

  void leave_torchs_for_now() {
    turn();
    at_end_of_backward([this, held = GradientEdge::into(*this, 0)] {
      if (!leads_into_torchs_) turn();
    });
  }

  void turn() {
    exchange_next(others_);
    leads_into_torchs_ = !leads_into_torchs_;
  }

  void set_receivers(AnyNode* node) {
    for (const auto output : origin_.outputs)
      if (output) backward_->nodes().receivers[*output] = node;
  }

  const std::shared_ptr<Backward> backward_;
  const Origin& origin_;
  const Indices passed_;  // the outputs that the first edges lead to
  bool leads_into_torchs_ = false;
  EdgeList others_;  // the engine's, or those of a second run's graph
};

// Hands over the gradients of a part, after its segment. Holds nothing of the call: where a hook
// raises, torch keeps the nodes that wait for their turn until the thread's next backward.
class HandOver : public AutogradNode {
 public:
  HandOver(const std::shared_ptr<Backward>& backward, const Share& part, bool has_next)
      : backward_(backward), part_(part), has_next_(has_next) {}
  ~HandOver() override {  // nobody else may hold what it led to
    if (const auto backward = backward_.lock())
      for (const size_t w : part_.wrt) backward->nodes().targets[w] = nullptr;
  }

  std::string name() const override { return "ORTModuleBackward" + std::to_string(part_.segment); }

  Gradients apply(Gradients&&) override {
    check_called_by_engine();
    const WithoutTransforms plain(is_run_by_the_engine());
    const auto backward = backward_.lock();
    check(backward != nullptr, "the outputs of this autograd node of ORTModule are gone");
    Gradients results = in_torchs_terms([&] { return backward->hand_over(part_); });
    if (has_next_) results.insert(results.begin(), at::Tensor());
    return results;
  }

 private:
  const std::weak_ptr<Backward> backward_;
  const Share& part_;  // the backward's
  const bool has_next_;
};

// What goes along a chain: it tells the engine the device, whose thread and stream run the nodes.
at::Tensor token_on(Device device) {
  return device.is_host() ? at::Tensor() : empty({DType::f32, {0}, true, {}, device});
}

using First = std::vector<GradientEdge>;  // by group: into the first node of its chain

// The last are made first: a node's edges may not change once it has a parent.
First chains(const std::shared_ptr<Backward>& backward, const std::vector<at::Tensor>& inputs) {
  const at::Tensor token = token_on(backward->call().state().options.device);
  const CapturedState& state = backward->call().state();
  First first(state.topology.groups.size());
  for (auto part = backward->parts().rbegin(); part != backward->parts().rend(); ++part) {
    auto& next = first[part->group];
    auto node = make_node<HandOver>(backward, *part, next.is_valid());
    node->add_input(token);
    EdgeList edges;
    edges.reserve(part->wrt.size() + 1);
    if (next.is_valid()) edges.add(std::move(next));
    for (const size_t w : part->wrt) {
      GradientEdge edge = GradientEdge::of(inputs[state.wrt[w]]);
      backward->nodes().targets[w] = edge.node();
      backward->nodes().target_places[w] = edge.input();
      edges.add(std::move(edge));
    }
    node->lead_to(std::move(edges));
    next = GradientEdge(node, 0);
  }
  return first;
}

// The node that takes the gradients of `origin`'s results. `to`: by output, the edge to its node;
// those of the outputs that it passes are there.
void add_receiver(const std::shared_ptr<Backward>& backward, const Origin& origin,
                  const First& first, std::vector<at::Tensor>& outputs,
                  std::vector<GradientEdge>& to) {
  const Topology& topology = backward->call().state().topology;
  const auto returned = [](const auto& output) { return output.has_value(); };
  const size_t any = **std::find_if(origin.outputs.begin(), origin.outputs.end(), returned);
  if (!outputs[any].is_floating_point() && !outputs[any].is_complex()) return;
  Indices passed;
  EdgeList edges;
  for (const size_t h : topology.next[any])
    if (to[h].is_valid()) {
      passed.push_back(h);
      edges.add(to[h]);
    }
  for (size_t g = 0; g < first.size(); ++g)
    if (contains(topology.groups[g].sources, any)) edges.add(first[g]);
  auto node = make_node<Receiver>(backward, origin, std::move(passed));
  node->lead_to(std::move(edges));
  for (const auto& output : origin.outputs) {
    const uint32_t result = node->add_input(output ? outputs[*output] : at::Tensor());
    if (!output) continue;
    to[*output] = GradientEdge(node, result);
    to[*output].lead(outputs[*output]);
  }
}

}  // namespace

void Backward::lead_into(const std::vector<at::Tensor>& outputs) {
  std::lock_guard lock(mutex_);
  led_into_torchs_ = true;
  for (const Origin& origin : call_->state().history.origins) {
    const auto returned = [](const auto& output) { return output.has_value(); };
    const size_t any = **std::find_if(origin.outputs.begin(), origin.outputs.end(), returned);
    if (AnyNode* node = nodes_.receivers[any]) static_cast<Receiver*>(node)->lead_into(outputs);
  }
}

void prepare_nodes() {
  name_node_types("ORTModuleBackward", kNoHook, {&typeid(Receiver)});
}

void add_nodes(const std::shared_ptr<Call>& call, const std::vector<at::Tensor>& inputs,
               std::vector<at::Tensor>& outputs) {
  const auto backward = std::make_shared<Backward>(call, call->state().parts(call->planned()));
  const First first = chains(backward, inputs);
  std::vector<GradientEdge> to(outputs.size());
  const CapturedState& state = call->state();
  const auto& origins = state.history.origins;
  for (auto origin = origins.rbegin(); origin != origins.rend(); ++origin)
    add_receiver(backward, *origin, first, outputs, to);
}

}  // namespace ort::bridge
