// The nodes between xs, zs and y are computed once more from the inputs, and differentiated there;
// where the inputs are xs and zs themselves, equal nodes are merged afterwards.
#include "gradient_graph/gradient_nodes.h"

#include <algorithm>
#include <map>
#include <set>

#include "csrc/graph/expand.h"
#include "csrc/graph/expr.h"
#include "csrc/ops/quantized/linear.h"
#include "gradient_graph/differentiate.h"

namespace ort::grad {
namespace {

constexpr std::string_view kOp = "ai.onnx.preview.training::Gradient";

class Asked {
 public:
  Asked(Graph& graph, Node& node, bool in_body)
      : graph_(graph),
        node_(node),
        in_body_(in_body),
        count_((node.in.size() - 1) / 2),
        y_(node.input(node.in.size() - 1)) {}

  void expand() {
    find_path();
    {
      Insertion here(graph_, &node_, kOp);
      graph_.context.where = node_.where;
      start_at_inputs();
      for (Node* node : path_) copy(*node);
    }
    const Value y = twin_of(y_);
    std::vector<ValueId> wrt;
    for (size_t i = 0; i < node_.out.size(); ++i) wrt.push_back(named(i).id);
    for (ValueId& id : wrt) id = twins_.at(id).id;
    const std::vector<Value> made = gradients_of(graph_, y, seed(y), wrt, &node_);
    for (size_t i = 0; i < made.size(); ++i) {
      if (node_.out[i] == kNone) continue;
      Insertion here(graph_, &node_, kOp);
      const Value dx = made[i] ? made[i] : zeros_like(graph_.value(wrt[i]));
      graph_.replace(node_.output(i), dx, kOp);
    }
    graph_.erase(&node_);
  }

 private:
  Value named(size_t i) const { return node_.input(count_ + i); }

  Value seed(Value y) {
    Insertion here(graph_, &node_, kOp);
    return zeros_like(y) + number(1.0, y);
  }

  // The nodes that y is computed by from xs and zs, in order.
  void find_path() {
    std::set<ValueId> from;
    for (size_t i = 0; i < count_; ++i)
      check(from.insert(named(i).id).second, "[Gradient] xs and zs name '{}' twice; {}",
            named(i).name(), node_.describe());
    std::set<ValueId> needed{y_.id};
    for (Node* node = node_.prev; node; node = node->prev) {
      const bool needs = std::any_of(node->out.begin(), node->out.end(), [&](ValueId id) {
        return needed.count(id) != 0 && from.count(id) == 0;
      });
      if (!needs) continue;
      for (const ValueId id : node->in)
        if (id != kNone) needed.insert(id);
      path_.push_back(node);
    }
    std::reverse(path_.begin(), path_.end());
    for (const ValueId id : needed)
      check(!in_body_ || !graph_.is_input(id) || from.count(id) != 0,
            "[Gradient] y depends on '{}' of the graph around its own, expected it among xs and "
            "zs; {}",
            graph_.value(id).name(), node_.describe());
  }

  void start_at_inputs() {
    for (size_t i = 0; i < count_; ++i)
      twins_[named(i).id] = graph_.emit1("Identity", {node_.input(i)});
  }

  Value twin_of(Value value) const {
    const auto found = twins_.find(value.id);
    return found == twins_.end() ? value : found->second;
  }

  void copy(const Node& node) {
    std::vector<Value> in;
    bool other = false;
    for (size_t i = 0; i < node.in.size(); ++i) {
      in.push_back(twin_of(node.input(i)));
      other = other || !(in.back() == node.input(i));
    }
    if (!other) return;
    std::vector<Value> out = graph_.emit_copy(node, in);
    Node& made = *out[0].producer();
    for (const auto& [name, body] : made.bodies) quantized::join_roundings(*body);
    if (const Value joined = quantized::join_rounding(made)) out = {joined};
    for (size_t i = 0; i < out.size(); ++i)
      if (node.out[i] != kNone) twins_.try_emplace(node.out[i], out[i]);
  }

  Graph& graph_;
  Node& node_;
  bool in_body_;
  size_t count_;  // of xs and zs
  Value y_;
  std::vector<Node*> path_;
  std::map<ValueId, Value> twins_;  // what stands for a value where the gradient is asked
};

void expand_in(Graph& graph, bool in_body) {
  const std::vector<Node*> nodes = graph.order();
  const bool any =
      std::any_of(nodes.begin(), nodes.end(), [](Node* node) { return node->is(kOp); });
  // What a node draws is drawn once, for y and for its gradient.
  if (any)
    expand_all(graph, [](const Node& node) {
      return node.schema->definition() && node.schema->effect(node) == Effect::random;
    });
  for (Node* node : graph.order()) {
    for (const auto& [name, body] : node->bodies) expand_in(*body, true);
    if (!node->is(kOp)) continue;
    try {
      Asked(graph, *node, in_body).expand();
    } catch (const NotAccepted&) {
      throw;  // it names its node
    } catch (const Error& error) {
      fail_at(error, node->describe());
    }
  }
}

}  // namespace

void expand_gradient_nodes(Graph& graph) {
  expand_in(graph, false);
}

}  // namespace ort::grad
