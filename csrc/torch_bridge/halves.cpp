// Dividing a differentiated graph: the backward is what depends on the outputs' gradients.
#include "csrc/torch_bridge/halves.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "csrc/graph/schema.h"
#include "csrc/passes/dce.h"
#include "csrc/torch_bridge/shared.h"
#include "gradient_graph/differentiate.h"

namespace ort::bridge {
namespace {

// A hook there, or a gradient that is asked for, would get what one output alone adds to it.
void check_apart(const History& history) {
  for (const auto& output : history.outputs)
    check(!output || output->through.empty(),
          "the gradient of an output passes another one, in a graph whose sizes depend on data");
}

void collect(const Dims& dims, std::set<std::string>& names) {
  for (const Dim& dim : dims) dim.collect_symbols(names);
}

class Division {
 public:
  explicit Division(const Shared& shared)
      : shared_(shared),
        n_inputs_(shared.graph->inputs().size()),
        n_outputs_(shared.graph->outputs().size()),
        joint_(shared.graph->clone()) {}

  std::shared_ptr<const Halves> divide() {
    differentiate();
    sort();
    make_backward();
    make_forward();
    halves_->forward = program(*forward_);
    halves_->backward = program(*backward_);
    return halves_;
  }

 private:
  enum class Part : uint8_t { forward, free, backward };  // free: made of nothing, by either

  void differentiate() {
    std::vector<size_t> outputs;
    for (size_t i = 0; i < shared_.history.outputs.size(); ++i)
      if (shared_.history.outputs[i]) outputs.push_back(i);
    std::vector<ValueId> values;
    for (const size_t i : shared_.wrt) values.push_back(joint_->inputs().at(i));
    for (const int output : grad::differentiate(*joint_, outputs, values).of_wrt)
      halves_->gradients.push_back(output < 0 ? -1 : output - static_cast<int>(n_outputs_));
    std::map<std::string, size_t> named;
    for (const size_t i : outputs) named["d_" + joint_->outputs()[i].name] = i;
    for (size_t i = n_inputs_; i < joint_->inputs().size(); ++i)
      halves_->defined.push_back(named.at(joint_->value(joint_->inputs()[i]).name()));
  }

  Part part(ValueId id) const { return parts_[static_cast<size_t>(id)]; }

  void sort() {
    parts_.assign(joint_->value_count(), Part::forward);
    for (size_t i = n_inputs_; i < joint_->inputs().size(); ++i)
      parts_[static_cast<size_t>(joint_->inputs()[i])] = Part::backward;
    for (const Node* node : joint_->order()) {
      const Part now = part_of(*node);
      for (const ValueId id : node->out)
        if (id != kNone) parts_[static_cast<size_t>(id)] = now;
    }
  }

  Part part_of(const Node& node) const {
    const auto reads = [&](Part wanted) {
      return std::any_of(node.in.begin(), node.in.end(),
                         [&](ValueId id) { return id != kNone && part(id) == wanted; });
    };
    if (reads(Part::backward)) return Part::backward;
    const bool made = reads(Part::forward) || node.schema->has_effect(node) ||
                      node.schema->allocates_results() || node.owns_bodies();
    return made ? Part::forward : Part::free;
  }

  // What the forward makes and the backward reads becomes its input, under the same number.
  void make_backward() {
    backward_ = joint_->clone();
    for (size_t i = 0; i < n_outputs_; ++i) backward_->drop_output(0);
    std::set<ValueId> read;
    const auto see = [&](ValueId id) {
      if (id != kNone && part(id) == Part::forward && !backward_->is_input(id)) read.insert(id);
    };
    const std::vector<Node*> nodes = backward_->order();
    const auto is_forward = [&](const Node* node) { return part_of(*node) == Part::forward; };
    for (const Node* node : nodes)
      if (!is_forward(node))
        for (const ValueId id : node->in) see(id);
    for (const Output& output : backward_->outputs()) see(output.value);
    for (const ValueId id : read) {
      const Node& node = *backward_->value(id).producer();
      check(backward_->value(id).type().is_tensor(),
            "[{}] an operator of torch's own, whose backward reads what its forward holds: that is "
            "not handed on where sizes depend on data; {}",
            node.qualified(), node.describe());
      backward_->make_input(backward_->value(id));
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (is_forward(*node)) backward_->erase(*node);  // made by the forward
    remove_dead(*backward_);
    for (const ValueId id : std::vector<ValueId>(backward_->inputs()))
      if (backward_->unused(id) && part(id) != Part::backward) backward_->drop_input(id);
    find_missing();
  }

  // Sizes that the backward names and none of its inputs tells.
  void find_missing() {
    std::set<std::string> named, told;
    for (const Node* node : backward_->order()) {
      for (const auto& [name, attr] : node->attrs)
        if (const auto* dims = std::get_if<Dims>(&attr)) collect(*dims, named);
      for (const ValueId id : node->out)
        if (id != kNone) collect(backward_->value(id).type().dims.value_or(Dims{}), named);
    }
    for (const ValueId id : backward_->inputs())
      for (const Dim& dim : backward_->value(id).type().dims.value_or(Dims{})) {
        dim.collect_symbols(named);
        if (const auto name = dim.symbol_name()) told.insert(*name);
      }
    for (const std::string& name : named)
      if (!told.count(name)) missing_.push_back(Dim::symbol(name));
    if (missing_.empty()) return;
    sizes_ = backward_->input("sizes", Type::tensor(DType::undefined, missing_), Role::shape).id;
  }

  // The forward gives the capture's outputs, and what the backward reads.
  void make_forward() {
    forward_ = joint_->clone();
    while (forward_->outputs().size() > n_outputs_) forward_->drop_output(n_outputs_);
    for (const ValueId id : backward_->inputs()) halves_->given.push_back(given(id));
    remove_dead(*forward_);
    for (size_t i = n_inputs_; i < joint_->inputs().size(); ++i)
      forward_->drop_input(joint_->inputs()[i]);
  }

  Given given(ValueId id) {
    if (id == sizes_) {
      forward_->output(forward_->sizes(missing_), "sizes");
      return {Given::From::sizes, forward_->outputs().size() - 1};
    }
    const auto& inputs = joint_->inputs();
    const auto found = std::find(inputs.begin(), inputs.end(), id);
    const auto at = static_cast<size_t>(found - inputs.begin());
    if (at < n_inputs_) return {Given::From::input, at};
    if (found != inputs.end()) return {Given::From::gradient, at - n_inputs_};
    for (size_t i = 0; i < forward_->outputs().size(); ++i)
      if (forward_->outputs()[i].value == id) return {Given::From::output, i};
    forward_->output(forward_->value(id), format("stash:{}", id));
    return {Given::From::output, forward_->outputs().size() - 1};
  }

  std::shared_ptr<Program> program(const Graph& graph) const {
    return std::make_shared<Program>(graph, shared_.options, Indices{}, Indices{});
  }

  const Shared& shared_;
  const size_t n_inputs_, n_outputs_;  // of the capture
  std::unique_ptr<Graph> joint_, forward_, backward_;
  std::vector<Part> parts_;  // by value of joint_
  Dims missing_;
  ValueId sizes_ = kNone;
  std::shared_ptr<Halves> halves_ = std::make_shared<Halves>();
};

}  // namespace

std::shared_ptr<const Halves> halves_of(const Shared& shared) {
  check(!shared.options.memory_budget,
        "a memory budget is set, which the backward of a graph whose sizes depend on data does not "
        "keep");
  check_apart(shared.history);
  return Division(shared).divide();
}

}  // namespace ort::bridge
