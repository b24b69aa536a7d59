// The reverse walk: which values need a gradient, each node's rule, the sum of contributions.
#include "gradient_graph/differentiate.h"

#include <algorithm>
#include <map>

#include "csrc/graph/expand.h"
#include "csrc/graph/expr.h"
#include "gradient_graph/bodies.h"

namespace ort::grad {

// The sum of two gradients of one value; complex numbers are known to torch alone.
Value sum_of(Value a, Value b) {
  if (!is_complex(a.dtype())) return a + b;
  const std::string add = "aten::add.Tensor", reason = "it adds complex gradients";
  const std::vector<std::string> types{a.type().text()};
  return a.graph->emit1(add, {a, b}, {{"schema", add}, {"types", types}, {"reason", reason}});
}

namespace {

bool carries_gradient(Value value) {
  const Type& type = value.type();
  if (type.inner) return true;  // what holds tensors may carry theirs, which no rule does yet
  return type.kind == Type::Kind::tensor && (is_floating(type.dtype) || is_complex(type.dtype));
}

class Differentiation {
 public:
  Differentiation(Graph& graph, std::span<const ValueId> wrt, Node* before = nullptr)
      : graph_(graph), before_(before) {
    active_.assign(graph.value_count(), false);
    for (const ValueId id : wrt) set_active(id);
  }

  // Values that depend on `wrt` through inputs that gradients flow to.
  void find_active() {
    for (Node* node : graph_.order()) {
      bool any = false;
      for (size_t i = 0; i < node->in.size(); ++i)
        any = any ||
              (node->has_input(i) && is_active(node->in[i]) && node->schema->differentiable(i));
      if (!any) continue;
      for (const ValueId id : node->out)
        if (id != kNone && carries_gradient(graph_.value(id))) set_active(id);
    }
  }

  // Nodes on the way that have a definition but no rule are replaced by the definition first.
  bool expand_without_rule() {
    return expand_all(graph_, [&](const Node& node) {
             return !node.schema->gradient_rule() && node.schema->definition() && on_the_way(node);
           }) > 0;
  }

  void seed(Value y, Value dy) { add(y.id, dy); }

  // Where the walk meets y, its gradient so far goes to `partial`, and dy goes on.
  void cut(Value y, Value dy, Value* partial) {
    check(y.producer() != nullptr, "the gradient of an input of the graph cannot be cut");
    check(cuts_.emplace(y.id, std::pair(dy, partial)).second,
          "two outputs to cut are one value of the graph, {}", y.name());
  }

  void walk() {
    std::vector<Node*> nodes = graph_.order();
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      for (const ValueId id : (*it)->out) stop_at_cut(id);
      visit(**it);
    }
  }

  Value gradient(ValueId id) const {
    const auto found = gradients_.find(id);
    return found == gradients_.end() ? Value{} : found->second;
  }

  bool is_active(ValueId id) const {
    return static_cast<size_t>(id) < active_.size() && active_[static_cast<size_t>(id)];
  }

 private:
  void set_active(ValueId id) {
    if (static_cast<size_t>(id) >= active_.size()) active_.resize(graph_.value_count(), false);
    active_[static_cast<size_t>(id)] = true;
  }

  bool on_the_way(const Node& node) const {
    return std::any_of(node.out.begin(), node.out.end(),
                       [&](ValueId id) { return id != kNone && is_active(id); });
  }

  void add(ValueId id, Value contribution) {
    Value& slot = gradients_[id];
    slot = slot ? sum_of(slot, contribution) : contribution;
  }

  void stop_at_cut(ValueId id) {
    const auto found = cuts_.find(id);
    if (found == cuts_.end()) return;
    *found->second.second = gradient(id);
    gradients_[id] = found->second.first;
  }

  void visit(Node& node) {
    std::vector<Value> dy;
    for (const ValueId id : node.out) dy.push_back(id == kNone ? Value{} : gradient(id));
    if (std::none_of(dy.begin(), dy.end(), [](Value v) { return static_cast<bool>(v); })) return;
    std::vector<bool> needs;
    for (size_t i = 0; i < node.in.size(); ++i)
      needs.push_back(node.has_input(i) && is_active(node.in[i]) && node.schema->differentiable(i));
    if (std::find(needs.begin(), needs.end(), true) == needs.end()) return;
    if (node.owns_bodies()) return visit_bodies(node, dy, needs);
    check(static_cast<bool>(node.schema->gradient_rule()), "no gradient for op '{}' ({}); {}",
          node.qualified(), node.describe(),
          node.schema->function()
              ? "ortmodule.custom_op was given none"
              : "its entry in csrc/ops needs .gradient(...) or .defined_as(...)");
    Insertion here(graph_, before_, "gradient of " + node.qualified());
    graph_.context.where = node.where;
    graph_.begin_op();
    // Rules may rely on the first gradient; those of variadic outputs look at each.
    if (!dy[0] && !node.schema->outputs()[0].variadic) dy[0] = zeros_like(node.output(0));
    try {
      const Outputs made = node.schema->gradient_rule()(Backward(graph_, node, dy, needs));
      for (size_t i = 0; i < made.size() && i < needs.size(); ++i)
        if (needs[i] && made[i]) accept(node, i, made[i]);
    } catch (const NotAccepted&) {
      throw;  // it names its node
    } catch (const Error& error) {
      fail_at(error, node.describe());
    }
  }

  void visit_bodies(Node& node, const std::vector<Value>& dy, const std::vector<bool>& needs) {
    Insertion here(graph_, before_, "gradient of " + node.qualified());
    graph_.context.where = node.where;
    const Outputs contributions = gradient_of_bodies(node, dy, needs);
    for (size_t i = 0; i < contributions.size(); ++i)
      if (needs[i] && contributions[i]) add(node.in[i], contributions[i]);
  }

  void accept(const Node& node, size_t i, Value contribution) {
    const Value x = node.input(i);
    if (node.schema->is_elementwise()) contribution = sum_to(contribution, x.dims());
    if (node.schema->has_wide_rule()) contribution = cast(contribution, x.dtype());
    check(contribution.dtype() == x.dtype() && contribution.rank() == x.rank(),
          "[{}] the gradient of input {} is {}, expected {}; {}", node.qualified(), i,
          contribution.type().text(), x.type().text(), node.describe());
    add(x.id, contribution);
  }

  Graph& graph_;
  Node* before_;  // null: the end
  std::vector<bool> active_;
  std::map<ValueId, Value> gradients_;
  std::map<ValueId, std::pair<Value, Value*>> cuts_;
};

// A value to cut at: the output itself, or, where it is only another order of the axes of what the
// other outputs are computed from, that. `perm`: from the value's axes to the output's.
struct Cut {
  Value at;
  std::vector<int64_t> perm;

  explicit Cut(Value y) : at(y) {
    const Node* node = y.producer();
    const bool read = std::any_of(y.uses().begin(), y.uses().end(),
                                  [](const Use& use) { return use.node != nullptr; });
    if (!node || !node->schema->is_permutation() || !node->attrs.has("perm") || read) return;
    at = node->input(0);
    perm = node->attrs.ints("perm");
  }
  Value of_output(Value partial) const {
    return partial && !perm.empty() ? transpose(partial, perm) : partial;
  }
  Value of_value(Value dy) const {
    if (perm.empty()) return dy;
    std::vector<int64_t> inverse(perm.size());
    for (size_t k = 0; k < perm.size(); ++k)
      inverse[static_cast<size_t>(perm[k])] = static_cast<int64_t>(k);
    return transpose(dy, inverse);
  }
};

}  // namespace

namespace {

// Where gradients go: a cut is asked for by itself, whatever lies behind it.
std::vector<ValueId> asked_for(const Graph& graph, std::span<const ValueId> wrt,
                               std::span<const size_t> cuts) {
  std::vector<ValueId> asked(wrt.begin(), wrt.end());
  for (const size_t i : cuts) asked.push_back(graph.outputs().at(i).value);
  return asked;
}

// Replaces the nodes on the way from `wrt` that have no rule by their definitions.
void expand_on_the_way(Graph& graph, std::span<const ValueId> wrt) {
  for (bool more = true; more;) {  // what a definition is made of may need its own
    Differentiation probe(graph, wrt);
    probe.find_active();
    more = probe.expand_without_rule();
  }
}

}  // namespace

Gradients differentiate(Graph& graph, std::span<const size_t> outputs, std::span<const ValueId> wrt,
                        std::span<const size_t> cuts) {
  expand_on_the_way(graph, asked_for(graph, wrt, cuts));
  Differentiation d(graph, asked_for(graph, wrt, cuts));
  d.find_active();
  const std::vector<Output> forward = graph.outputs();
  std::vector<Value> partial(cuts.size());
  std::vector<Cut> places;
  for (const size_t i : cuts) places.emplace_back(graph.value(forward[i].value));
  for (const size_t i : outputs) {
    const Value y = graph.value(forward[i].value);
    if (!d.is_active(y.id)) continue;
    const Value dy = graph.input("d_" + forward[i].name, y.type(), Role::gradient);
    const auto found = std::find(cuts.begin(), cuts.end(), i);
    if (found == cuts.end()) {
      d.seed(y, dy);
      continue;
    }
    const auto k = static_cast<size_t>(found - cuts.begin());
    d.cut(places[k].at, places[k].of_value(dy), &partial[k]);
  }
  d.walk();
  const auto give = [&](Value dx, const std::string& name) {
    const int output = dx ? static_cast<int>(graph.outputs().size()) : -1;
    if (dx) graph.output(dx, name);
    return output;
  };
  Gradients results;
  for (const ValueId id : wrt)
    results.of_wrt.push_back(give(d.gradient(id), "d_" + graph.value(id).name()));
  for (size_t k = 0; k < cuts.size(); ++k)
    results.of_cuts.push_back(
        give(places[k].of_output(partial[k]), "cut_" + forward[cuts[k]].name));
  return results;
}

std::vector<Value> gradients_of(Graph& graph, Value y, Value dy, std::span<const ValueId> wrt,
                                Node* before) {
  {
    Insertion here(graph, before);
    const Value same = graph.emit1("Identity", {y});  // y may become the end of its definition
    expand_on_the_way(graph, wrt);
    y = same.producer()->input(0);
    graph.erase(same.producer());
  }
  Differentiation d(graph, wrt, before);
  d.find_active();
  if (d.is_active(y.id)) d.seed(y, dy);
  d.walk();
  std::vector<Value> made;
  for (const ValueId id : wrt) made.push_back(d.gradient(id));
  return made;
}

std::vector<bool> depends(Graph& graph, std::span<const ValueId> wrt) {
  Differentiation d(graph, wrt);
  d.find_active();
  std::vector<bool> result;
  for (const Output& output : graph.outputs()) result.push_back(d.is_active(output.value));
  return result;
}

}  // namespace ort::grad
