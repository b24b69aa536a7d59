// What a body's inputs and outputs are to its node, and its joint graph.
#include "gradient_graph/bodies.h"

#include <algorithm>
#include <set>

#include "csrc/graph/expr.h"
#include "gradient_graph/differentiate.h"

namespace ort::grad {
namespace {

using Indices = std::vector<size_t>;

// Results of a node are its states, then what it collects.
struct Places : OpSchema::BodyPlaces {
  size_t states = 0, captures = 0;

  explicit Places(const Node& node)
      : BodyPlaces(node.schema->body_places()),
        captures(static_cast<size_t>(node.attrs.i("captures", 0))) {
    const size_t scanned = static_cast<size_t>(node.attrs.i("num_scan_inputs", 0));
    if (loops) states = node.in.size() - captures - first_state - scanned;
  }
};

std::vector<int64_t> as_ints(const Indices& indices) {
  return {indices.begin(), indices.end()};
}

// One body differentiated.
class Joint {
 public:
  Joint(const Graph& body, const Places& places, const std::vector<bool>& needs,
        const std::vector<Value>& dy)
      : graph_(body.clone_body()),
        places_(places),
        own_(body.inputs().size() - places.captures),
        outputs_(body.outputs().size()) {
    for (size_t i = 0; i < graph_->inputs().size(); ++i)
      if (needs.at(i + places.first_input)) active_.insert(i);
    spread();
    for (size_t j = 0; j < outputs_; ++j) {
      const size_t result = j - places.first_output;
      const bool state = result < places.states;
      const bool given = j >= places.first_output && result < dy.size() && dy[result];
      if (depends_[j] && j >= places.first_output && (state || given)) defined_.push_back(j);
    }
    differentiate_body();
  }

  Indices wrt() const { return {active_.begin(), active_.end()}; }
  const Indices& defined() const { return defined_; }

  // Inputs that a node reads which depends on a gradient.
  std::set<size_t> read_by_backward() const {
    std::vector<bool> backward(graph_->value_count(), false);
    for (const ValueId id : graph_->inputs())
      backward[static_cast<size_t>(id)] = graph_->role(id) == Role::gradient;
    std::set<ValueId> read;
    for (const Node* node : graph_->order()) {
      const bool late = std::any_of(node->in.begin(), node->in.end(), [&](ValueId id) {
        return id != kNone && backward[static_cast<size_t>(id)];
      });
      if (!late) continue;
      read.insert(node->in.begin(), node->in.end());
      for (const ValueId id : node->out)
        if (id != kNone) backward[static_cast<size_t>(id)] = true;
    }
    std::set<size_t> inputs;
    for (size_t i = 0; i < graph_->inputs().size(); ++i)
      if (read.count(graph_->inputs()[i])) inputs.insert(i);
    return inputs;
  }

  std::unique_ptr<Graph> take() { return std::move(graph_); }

 private:
  // A state that depends on what is active is active in the next trip.
  void spread() {
    for (bool changed = true; changed;) {
      std::vector<ValueId> values;
      for (const size_t i : active_) values.push_back(graph_->inputs()[i]);
      depends_ = depends(*graph_, values);
      changed = false;
      for (size_t s = 0; s < places_.states; ++s)
        if (depends_.at(places_.first_output + s))
          changed = active_.insert(places_.first_state + s).second || changed;
    }
  }

  // Every active input has a gradient then, be it zero; those of captures are added to sums.
  void differentiate_body() {
    std::vector<ValueId> wrt;
    for (const size_t i : active_) wrt.push_back(graph_->inputs()[i]);
    const Gradients gradients = differentiate(*graph_, defined_, wrt);
    std::vector<Value> given;
    for (const int output : gradients.of_wrt)
      given.push_back(output < 0 ? Value{} : output_of(static_cast<size_t>(output)));
    while (graph_->outputs().size() > outputs_) graph_->drop_output(outputs_);
    for (size_t k = 0; k < wrt.size(); ++k) give(graph_->value(wrt[k]), given[k]);
  }

  Value output_of(size_t i) const { return graph_->value(graph_->outputs()[i].value); }

  void give(Value x, Value dx) {
    if (!dx) dx = zeros_like(x);
    if (places_.loops && is_capture(x))
      dx = sum_of(graph_->input("sum_" + x.name(), x.type(), Role::gradient), dx);
    graph_->output(dx, "d_" + x.name());
  }

  bool is_capture(Value x) const {
    const auto captures = std::span(graph_->inputs()).subspan(own_, places_.captures);
    return std::find(captures.begin(), captures.end(), x.id) != captures.end();
  }

  std::unique_ptr<Graph> graph_;
  const Places& places_;
  size_t own_;      // inputs before the captures
  size_t outputs_;  // of the forward
  std::set<size_t> active_;
  std::vector<bool> depends_;
  Indices defined_;
};

// What of a node's inputs its gradient takes: those that keep their value over all trips, or of
// which each trip has a part. States are in the history.
std::set<size_t> operands_of(const Joint& joint, const Places& places) {
  std::set<size_t> operands;
  for (const size_t i : joint.read_by_backward())
    if (i >= places.first_state + places.states) operands.insert(i + places.first_input);
  return operands;
}

Attrs attrs_of(const Node& node, const Places& places, const Indices& of) {
  Attrs attrs;
  for (const char* name : {"num_scan_inputs", "scan_input_axes", "scan_input_directions",
                           "scan_output_axes", "scan_output_directions"})
    if (const Attr* attr = node.attrs.find(name)) attrs.set(name, *attr);
  std::vector<std::string> types;
  for (const size_t i : of) types.push_back(node.input(i).type().text());
  attrs.set("of", as_ints(of));
  attrs.set("types", types);
  attrs.set("results", static_cast<int64_t>(node.out.size()));
  attrs.set("states", static_cast<int64_t>(places.states));
  return attrs;
}

}  // namespace

Outputs gradient_of_bodies(Node& node, const std::vector<Value>& dy,
                           const std::vector<bool>& needs) {
  Graph& graph = *node.graph;
  const std::string name = "ort::" + node.op + "Gradient";
  check(graph.ops().find(name) != nullptr, "no gradient for op '{}' ({})", node.qualified(),
        node.describe());
  const Places places(node);
  Indices of;
  for (size_t i = places.first_input; i < node.in.size(); ++i)
    if (needs[i]) of.push_back(i);
  Attrs attrs = attrs_of(node, places, of);
  Bodies bodies;
  std::set<size_t> operands;
  for (const std::string& body : node.schema->bodies()) {
    Joint joint(node.body(body), places, needs, dy);
    operands.merge(operands_of(joint, places));
    attrs.set(body + "_wrt", as_ints(joint.wrt()));
    attrs.set(body + "_defined", as_ints(joint.defined()));
    bodies.emplace_back(body, joint.take());
  }
  attrs.set("operands", as_ints({operands.begin(), operands.end()}));
  attrs.set("captures", node.attrs.i("captures", 0));
  node.attrs.set("history", int64_t{1});
  std::vector<Value> in{graph.add_output(&node, Type::opaque())};
  in.insert(in.end(), dy.begin(), dy.end());
  for (const size_t i : operands) in.push_back(node.input(i));
  const std::vector<Value> gradients =
      graph.emit(name, in, std::move(attrs), static_cast<int>(of.size()), std::move(bodies));
  Outputs contributions(node.in.size());
  for (size_t k = 0; k < of.size(); ++k) contributions[of[k]] = gradients[k];
  return contributions;
}

}  // namespace ort::grad
