// Folding in program order: one walk folds whole chains.
#include "csrc/passes/fold_constants.h"

#include <algorithm>
#include <set>

namespace ort {
namespace {

// A value's bytes when the graph alone determines them.
std::optional<Tensor> known(Value value) {
  if (const Tensor* tensor = constant_of(value)) return *tensor;
  if (!value.producer() || !value.producer()->schema->is_sizes()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Dim& dim : *value.graph->contents(value.id)) {
    if (!dim.value()) return std::nullopt;
    numbers.push_back(*dim.value());
  }
  Tensor tensor = Tensor::of(numbers);
  if (value.rank() == 0) tensor.sizes.clear();
  return tensor;
}

size_t result_bytes(const Node& node) {
  size_t bytes = 0;
  for (size_t i = 0; i < node.out.size(); ++i)
    if (node.out[i] != kNone)
      bytes += static_cast<size_t>(*product(node.output(i).dims()).value()) *
               size_of(node.output(i).dtype());
  return bytes;
}

// Of the constants that only this node reads, which go with it.
size_t freed_bytes(const Node& node) {
  size_t bytes = 0;
  for (size_t i = 0; i < node.in.size(); ++i)
    if (node.has_input(i) && node.input(i).uses().size() == 1 &&
        !node.graph->output_used(node.in[i]))
      if (const Tensor* constant = constant_of(node.input(i))) bytes += constant->bytes();
  return bytes;
}

// Of a node that is folded; the constants that nobody else reads go at once, as they may be large.
void erase_with_constants(Graph& graph, Node* node) {
  std::vector<ValueId> in = node->in;
  graph.erase(node);
  std::sort(in.begin(), in.end());
  in.erase(std::unique(in.begin(), in.end()), in.end());
  for (const ValueId id : in) {
    Node* made_by = id == kNone ? nullptr : graph.value(id).producer();
    if (made_by && made_by->schema->is_constant() && graph.unused(id)) graph.erase(made_by);
  }
}

bool small_enough(const Node& node, size_t limit) {
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == kNone) continue;
    const Type& type = node.output(i).type();
    if (type.kind != Type::Kind::tensor || !type.dims) return false;
    Sizes sizes;
    for (const Dim& dim : *type.dims) {
      if (!dim.value()) return false;
      sizes.push_back(*dim.value());
    }
    const size_t bytes = std::max<size_t>(size_of(type.dtype), 1);
    if (!is_addressable(sizes, bytes) || static_cast<size_t>(element_count(sizes)) * bytes > limit)
      return false;
  }
  return true;
}

// Nodes to infer again, as an operand has become a number: what it says of sizes is new.
class Stale {
 public:
  void users_of(Value value) {
    for (const Use& use : value.uses())
      if (use.node) nodes_.insert(use.node);
  }
  void infer(Graph& graph, Node* node) {
    if (!nodes_.erase(node)) return;
    const auto before = known_of(*node);
    graph.infer(node);
    if (known_of(*node) == before) return;
    for (size_t i = 0; i < node->out.size(); ++i)
      if (node->out[i] != kNone) users_of(node->output(i));
  }

 private:
  using Known = std::vector<std::pair<Type, std::optional<Dims>>>;
  static Known known_of(const Node& node) {
    Known known;
    for (const ValueId id : node.out)
      if (id != kNone) known.emplace_back(node.graph->value(id).type(), node.graph->contents(id));
    return known;
  }
  std::set<Node*> nodes_;
};

// The operands where the graph alone determines each of them; an absent one is empty.
std::optional<std::vector<Tensor>> known_operands(const Node& node) {
  std::vector<Tensor> in(node.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (!node.has_input(i)) continue;
    auto tensor = known(node.input(i));
    if (!tensor) return std::nullopt;
    in[i] = std::move(*tensor);
  }
  return in;
}

// Nothing where it fails: that is the error of a run that comes to the node, which a branch may
// not.
std::optional<std::vector<Tensor>> evaluated(Evaluator& evaluator, const Node& node,
                                             std::span<const Tensor> in) {
  try {
    return evaluator.evaluate(node, in);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void replace_by_constants(Graph& graph, Node* node, const std::vector<Tensor>& out, Stale& stale) {
  const Insertion here(graph, node, "fold_constants");
  for (size_t i = 0; i < node->out.size(); ++i) {
    if (node->out[i] == kNone) continue;
    const Value constant = graph.constant(out[i]);
    graph.replace(node->output(i), constant, "fold_constants");
    stale.users_of(constant);
  }
  erase_with_constants(graph, node);
}

}  // namespace

size_t fold_constants(Graph& graph, Evaluator& evaluator, FoldedBytes& folded, const IsKept& kept,
                      size_t limit) {
  size_t count = 0;
  Stale stale;
  for (Node* node : graph.order()) {
    stale.infer(graph, node);
    if (node->in.empty() || node->schema->has_effect(*node)) continue;
    if (!small_enough(*node, limit) || (kept && kept(*node))) continue;
    const auto in = known_operands(*node);
    if (!in || !evaluator.can_evaluate(*node)) continue;
    const size_t made = result_bytes(*node), freed = freed_bytes(*node);
    if (made > freed && !folded.fits(made - freed)) continue;  // each run computes it instead
    const auto out = evaluated(evaluator, *node, *in);
    if (!out) continue;
    folded.add(made, freed);
    replace_by_constants(graph, node, *out, stale);
    ++count;
  }
  return count;
}

}  // namespace ort
