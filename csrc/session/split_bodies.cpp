// The halves of a joint graph: values that cross are outputs of the one and inputs of the other.
#include "csrc/session/split_bodies.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "csrc/passes/dce.h"
#include "csrc/session/around.h"
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
  // `given`: inputs of the body that the backward half can read as they are.
  Splitting(const Graph& joint, size_t n_inputs, size_t n_outputs, std::set<size_t> given)
      : joint_(joint), n_inputs_(n_inputs), n_outputs_(n_outputs), given_(std::move(given)) {
    for (size_t i = 0; i < joint.inputs().size(); ++i) position_[joint.inputs()[i]] = i;
    for (const Node* node : joint.order())
      if (node->segment >= 0)
        for (const ValueId id : node->in) cross(id);
    for (size_t i = n_outputs; i < joint.outputs().size(); ++i) cross(joint.outputs()[i].value);
    make_forward();
    make_backward();
    pass_sizes();
  }

  std::unique_ptr<Graph> forward, backward;
  std::vector<int64_t> kept, reads;

 private:
  void cross(ValueId id) {
    if (id == kNone) return;
    const auto input = position_.find(id);
    const Node* producer = joint_.value(id).producer();
    if (input != position_.end() ? input->second < n_inputs_ : producer->segment < 0)
      crossing_.insert(id);
  }

  void keep(ValueId id, Kept kind, size_t index) {
    stash_[id] = kept.size() / 2;
    kept.insert(kept.end(), {static_cast<int64_t>(kind), static_cast<int64_t>(index)});
  }
  void read(Read kind, size_t index) {
    reads.insert(reads.end(), {static_cast<int64_t>(kind), static_cast<int64_t>(index)});
  }

  void make_forward() {
    forward = joint_.clone();
    while (forward->outputs().size() > n_outputs_) forward->drop_output(n_outputs_);
    for (const ValueId id : crossing_) {
      const auto input = position_.find(id);
      if (input == position_.end())
        keep(id, Kept::output, output_of(id));
      else if (!given_.count(input->second))
        keep(id, Kept::input, input->second);
    }
    erase_nodes(*forward, [](const Node& node) { return node.segment >= 0; });
    const std::vector<ValueId> inputs = forward->inputs();
    for (size_t i = n_inputs_; i < inputs.size(); ++i) forward->drop_input(inputs[i]);
  }

  // The output of the forward half that the value is.
  size_t output_of(ValueId id) {
    const auto& outputs = forward->outputs();
    for (size_t j = 0; j < outputs.size(); ++j)
      if (outputs[j].value == id) return j;
    forward->output(forward->value(id), format("%{}", id));
    return outputs.size() - 1;
  }

  void make_backward() {
    backward = joint_.clone();
    for (size_t j = 0; j < n_outputs_; ++j) backward->drop_output(0);
    for (const ValueId id : crossing_)
      if (!position_.count(id)) backward->make_input(backward->value(id));
    erase_nodes(*backward, [](const Node& node) { return node.segment < 0; });
    for (Node* node : backward->order()) node->segment = -1;
    for (const ValueId id : std::vector<ValueId>(backward->inputs())) {
      const auto input = position_.find(id);
      const bool of_body = input != position_.end() && input->second < n_inputs_;
      if (of_body && !crossing_.count(id))
        backward->drop_input(id);
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
    const std::vector<std::string> symbols = unsolved_symbols(*backward);
    if (symbols.empty()) return;
    Dims dims;
    for (size_t k = 0; k < symbols.size(); ++k) {
      dims.push_back(Dim::symbol(symbols[k]));
      read(Read::size, k);
    }
    add_shapes(*backward, symbols);
    forward->output(forward->sizes(dims), "sizes");
    kept.insert(kept.end(), {static_cast<int64_t>(Kept::output),
                             static_cast<int64_t>(forward->outputs().size() - 1)});
  }

  const Graph& joint_;
  size_t n_inputs_, n_outputs_;
  std::set<size_t> given_;
  std::map<ValueId, size_t> position_;  // of the joint graph's inputs
  std::set<ValueId> crossing_;
  std::map<ValueId, size_t> stash_;
};

// Inputs of a body that are operands of the gradient's node.
std::set<size_t> given_inputs(const Node& forward, const Node& gradient) {
  std::set<size_t> given;
  for (const int64_t i : gradient.attrs.ints("operands"))
    given.insert(static_cast<size_t>(i) - (forward.is("If") ? 1 : 0));
  return given;
}

void split_body(Node& forward, Node& gradient, const std::string& name, PassOptions& passes) {
  Graph& joint = gradient.body(name);
  const Graph& body = forward.body(name);
  const size_t n_outputs = body.outputs().size();
  optimise(joint, passes);
  split_bodies(joint, passes);
  const std::vector<size_t> bytes(joint.outputs().size() - n_outputs, 0);
  grad::assign_segments(joint, n_outputs, std::numeric_limits<size_t>::max(), bytes);
  grad::choose_stash(joint);
  remove_dead(joint);
  Splitting halves(joint, body.inputs().size(), n_outputs, given_inputs(forward, gradient));
  forward.attrs.set(name + "_kept", std::move(halves.kept));
  gradient.attrs.set(name + "_reads", std::move(halves.reads));
  forward.graph->set_body(&forward, name + std::string(kRecorded),
                          std::move(halves.forward));
  gradient.graph->set_body(&gradient, name, std::move(halves.backward));
}

}  // namespace

void split_bodies(Graph& graph, PassOptions& passes) {
  for (Node* node : graph.order()) {
    const bool of_bodies = node->owns_bodies() && node->has_input(0) &&
                           node->input(0).type().kind == Type::Kind::opaque;
    Node* forward = of_bodies ? node->input(0).producer() : nullptr;
    if (!forward || forward->find_body(node->schema->bodies()[0] + std::string(kRecorded))) continue;
    for (const std::string& name : node->schema->bodies())
      split_body(*forward, *node, name, passes);
  }
}

}  // namespace ort
