// The halves of a joint graph: values that cross are outputs of the one and inputs of the other.
#include "csrc/program/split.h"

#include <algorithm>
#include <limits>
#include <map>

#include "csrc/passes/dce.h"
#include "csrc/program/around.h"
#include "csrc/program/split_bodies.h"
#include "gradient_graph/segments.h"
#include "gradient_graph/stash.h"

namespace ort {
namespace {

// Erases the nodes of one half.
template <class F>
void erase_nodes(Graph& graph, F&& is_other) {
  const std::vector<Node*> nodes = graph.order();
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it)
    if (is_other(**it)) graph.erase(*it);
}

class Splitting {
 public:
  Splitting(const Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given,
            bool in_segments)
      : joint_(joint),
        n_inputs_(n_inputs),
        n_outputs_(n_outputs),
        given_(std::move(given)),
        in_segments_(in_segments) {
    for (size_t i = 0; i < joint.inputs().size(); ++i) position_[joint.inputs()[i]] = i;
    for (const Node* node : joint.order())
      if (node->segment >= 0)
        for (const ValueId id : node->in) cross(id);
    for (size_t i = n_outputs; i < joint.outputs().size(); ++i) cross(joint.outputs()[i].value);
    make_forward();
    make_backward();
    pass_sizes();
  }

  Halves take() {
    return {std::move(forward_), std::move(backward_), std::move(kept_), std::move(reads_)};
  }

 private:
  void cross(ValueId id) {
    if (id == kNone) return;
    const auto input = position_.find(id);
    const Node* producer = joint_.value(id).producer();
    if (input != position_.end() ? input->second < n_inputs_ : producer->segment < 0)
      crossing_.insert(id);
  }

  void keep(ValueId id, Kept kind, size_t index) {
    stash_[id] = kept_.size();
    kept_.push_back({kind, index});
  }
  void read(Read kind, size_t index) { reads_.push_back({kind, index}); }

  void make_forward() {
    forward_ = joint_.clone();
    while (forward_->outputs().size() > n_outputs_) forward_->drop_output(n_outputs_);
    for (const ValueId id : crossing_) {
      const auto input = position_.find(id);
      if (input == position_.end())
        keep(id, Kept::output, output_of(id));
      else if (!given_.count(input->second))
        keep(id, Kept::input, input->second);
    }
    keep_histories();
    erase_nodes(*forward_, [](const Node& node) { return node.segment >= 0; });
    const std::vector<ValueId> inputs = forward_->inputs();
    for (size_t i = n_inputs_; i < inputs.size(); ++i) forward_->drop_input(inputs[i]);
  }

  // An operator of torch's no longer sees its backward: it is told for which inputs that asks.
  void keep_histories() {
    for (Node* node : forward_->order()) {
      if (node->segment >= 0 || !node->schema->is_foreign()) continue;
      for (const ValueId id : node->out) {
        const bool history = id != kNone && forward_->value(id).type().kind == Type::Kind::opaque;
        if (history && !forward_->value(id).uses().empty())
          node->attrs.set("history_of", forward_->value(id).uses()[0].node->attrs.ints("of"));
      }
    }
  }

  // The output of the forward half that the value is.
  size_t output_of(ValueId id) {
    const auto& outputs = forward_->outputs();
    for (size_t j = 0; j < outputs.size(); ++j)
      if (outputs[j].value == id) return j;
    forward_->output(forward_->value(id), format("%{}", id));
    return outputs.size() - 1;
  }

  void make_backward() {
    backward_ = joint_.clone();
    for (size_t j = 0; j < n_outputs_; ++j) backward_->drop_output(0);
    for (const ValueId id : crossing_)
      if (!position_.count(id)) backward_->make_input(backward_->value(id));
    erase_nodes(*backward_, [](const Node& node) { return node.segment < 0; });
    if (!in_segments_)
      for (Node* node : backward_->order()) node->segment = -1;
    for (const ValueId id : std::vector<ValueId>(backward_->inputs())) {
      const auto input = position_.find(id);
      const bool of_body = input != position_.end() && input->second < n_inputs_;
      if (of_body && !crossing_.count(id))
        backward_->drop_input(id);
      else if (of_body && given_.count(input->second))
        read(Read::input, input->second);
      else if (input != position_.end() && !of_body)
        read(Read::gradient, input->second - n_inputs_);
      else
        read(Read::stash, stash_.at(id));
    }
  }

  // Sizes that no input of the backward half has.
  void pass_sizes() {
    const std::vector<std::string> symbols = unsolved_symbols(*backward_);
    if (symbols.empty()) return;
    Dims dims;
    for (size_t k = 0; k < symbols.size(); ++k) {
      dims.push_back(Dim::symbol(symbols[k]));
      read(Read::size, k);
    }
    add_shapes(*backward_, symbols);
    forward_->output(forward_->sizes(dims), "sizes");
    kept_.push_back({Kept::output, forward_->outputs().size() - 1});
  }

  const Graph& joint_;
  size_t n_inputs_, n_outputs_;
  std::set<size_t> given_;
  bool in_segments_;
  std::map<ValueId, size_t> position_;  // of the joint graph's inputs
  std::set<ValueId> crossing_;
  std::map<ValueId, size_t> stash_;
  std::unique_ptr<Graph> forward_, backward_;
  std::vector<Halves::Item<Kept>> kept_;
  std::vector<Halves::Item<Read>> reads_;
};

}  // namespace

Halves cut_in_halves(const Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given,
                     bool in_segments) {
  return Splitting(joint, n_inputs, n_outputs, std::move(given), in_segments).take();
}

Halves split(Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given,
             PassOptions& passes) {
  optimise(joint, passes);
  split_bodies(joint, passes);
  const std::vector<size_t> bytes(joint.outputs().size() - n_outputs, 0);
  grad::assign_segments(joint, n_outputs, std::numeric_limits<size_t>::max(), bytes);
  grad::choose_stash(joint);
  remove_dead(joint);
  return cut_in_halves(joint, n_inputs, n_outputs, std::move(given), false);
}

}  // namespace ort
