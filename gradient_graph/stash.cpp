// Recomputation by cloning a forward node before its first reader in the backward.
#include "gradient_graph/stash.h"

#include <algorithm>
#include <map>
#include <set>

#include "csrc/graph/schema.h"

namespace ort::grad {
namespace {

bool is_backward(const Node* node) {
  return node->segment >= 0;
}

bool is_free(const Node& node) {
  return node.schema->is_view() || node.is("Constant") || node.is("ort::Sizes");
}

class Recomputation {
 public:
  explicit Recomputation(Graph& graph) : graph_(graph) {}

  size_t run() {
    for (Node* node : graph_.order())
      if (is_backward(node))
        for (size_t i = 0; i < node->in.size(); ++i)
          if (node->has_input(i) && crosses(node->input(i))) kept_.insert(node->in[i]);
    std::vector<Node*> forward;
    for (Node* node : graph_.order())
      if (!is_backward(node)) forward.push_back(node);
    // Later nodes first: recomputing one may ask for its operands, which come before it.
    for (auto it = forward.rbegin(); it != forward.rend(); ++it)
      if (worth_it(**it)) clone(**it);
    return count_;
  }

 private:
  static bool crosses(Value value) { return value.producer() && !is_backward(value.producer()); }

  bool worth_it(const Node& node) const {
    const bool read = std::any_of(node.out.begin(), node.out.end(),
                                  [&](ValueId id) { return kept_.count(id) != 0; });
    if (!read || node.schema->has_effect(node)) return false;
    if (is_free(node) || node.recompute) return true;
    if (!node.schema->is_elementwise() || node.is("ort::Dropout")) return false;
    // element-wise: only from what is there anyway
    for (size_t i = 0; i < node.in.size(); ++i) {
      const Value x = node.input(i);
      const bool there = !x || !x.producer() || kept_.count(x.id) || is_free(*x.producer());
      if (!there) return false;
    }
    return is_cheap(node);
  }

  // Without transcendental work: a pass over memory costs more than the arithmetic.
  static bool is_cheap(const Node& node) {
    static const std::set<std::string, std::less<>> kCheap{
        "Add",         "Sub",   "Mul",   "Neg",     "Cast", "Not",
        "And",         "Or",    "Equal", "Greater", "Less", "GreaterOrEqual",
        "LessOrEqual", "Where", "Relu",  "Abs",     "Sign", "Max",
        "Min",         "Clip"};
    return kCheap.count(node.op) != 0;
  }

  void clone(Node& node) {
    std::map<int, Node*> first_reader;
    for (const ValueId id : node.out) {
      if (id == kNone) continue;
      kept_.erase(id);
    }
    Node* before = first_backward_reader(node);
    Insertion here(graph_, before, "recompute");
    std::vector<Value> in;
    for (size_t i = 0; i < node.in.size(); ++i) in.push_back(node.input(i));
    const std::string op = node.qualified();
    const std::vector<Value> twins =
        graph_.emit(op, in, node.attrs, static_cast<int>(node.out.size()));
    for (size_t i = 0; i < node.out.size(); ++i)
      if (node.out[i] != kNone) redirect(node.output(i), twins[i]);
    for (const Value& x : in)
      if (x && crosses(x)) kept_.insert(x.id);
    ++count_;
  }

  Node* first_backward_reader(const Node& node) const {
    std::set<const Node*> readers;
    for (const ValueId id : node.out)
      if (id != kNone)
        for (const Use& use : graph_.value(id).uses())
          if (is_backward(use.node)) readers.insert(use.node);
    Node* first = nullptr;
    for (Node* at = graph_.first(); at && !first; at = at->next)
      if (readers.count(at)) first = at;
    return first;
  }

  void redirect(Value from, Value to) {
    const std::vector<Use> uses = from.uses();
    for (const Use& use : uses)
      if (is_backward(use.node) && use.node != to.producer())
        graph_.replace_input(use.node, static_cast<size_t>(use.index), to);
    // the twin runs in the segment of its first reader
    int segment = to.producer()->segment;
    for (const Use& use : to.uses()) segment = std::min(segment, use.node->segment);
    to.producer()->segment = segment;
  }

  Graph& graph_;
  std::set<ValueId> kept_;
  size_t count_ = 0;
};

}  // namespace

size_t recompute_cheap(Graph& graph) {
  return Recomputation(graph).run();
}

}  // namespace ort::grad
