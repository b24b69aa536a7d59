// The flow network of the choice, the order in which nodes become candidates under a budget, and
// recomputation by cloning a forward node before its first reader in the backward.
#include "gradient_graph/stash.h"

#include <algorithm>
#include <bit>
#include <map>

#include "csrc/graph/schema.h"
#include "gradient_graph/min_cut.h"

namespace ort::grad {
namespace {

constexpr int64_t kGuessedSize = 64;

bool is_backward(const Node* node) {
  return node->segment >= 0;
}

bool is_free(const Node& node) {
  return node.schema->is_view() || node.is("Constant") || node.is("ort::Sizes");
}

// Without transcendental work: a pass over memory costs more than the arithmetic.
bool is_cheap(const Node& node) {
  static const std::set<std::string, std::less<>> kCheap{
      "Add",         "Sub",   "Mul",   "Neg",     "Cast", "Not",
      "And",         "Or",    "Equal", "Greater", "Less", "GreaterOrEqual",
      "LessOrEqual", "Where", "Relu",  "Abs",     "Sign", "Max",
      "Min",         "Clip"};
  return kCheap.count(node.op) != 0;
}

// What may not run twice, or whose result is no memory of ours. A checkpoint's user asked for it.
bool must_keep(const Node& node) {
  if (node.schema->has_effect(node)) return true;
  if (node.recompute) return false;
  return node.domain() == "aten" || std::any_of(node.out.begin(), node.out.end(), [&](ValueId id) {
           return id != kNone && node.graph->value(id).type().kind != Type::Kind::tensor;
         });
}

// Recomputed, it would ask for the checkpoint region before it, and that one for all before.
bool follows_region(const Node& node) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Node* producer = node.input(i) ? node.input(i).producer() : nullptr;
    while (producer && producer->schema->is_view()) producer = producer->input(0).producer();
    if (producer && producer->recompute) return true;
  }
  return false;
}

std::vector<const Node*> backward_readers(const Node& node) {
  std::vector<const Node*> readers;
  for (const ValueId id : node.out)
    if (id != kNone)
      for (const Use& use : node.graph->value(id).uses())
        if (is_backward(use.node)) readers.push_back(use.node);
  return readers;
}

class Choice {
 public:
  Choice(Graph& graph, const StashOptions& options) : graph_(graph), options_(options) {
    for (const size_t i : options.shared) {
      Value value = graph.value(graph.outputs().at(i).value);
      while (value.producer() && value.producer()->schema->is_view())
        value = value.producer()->input(0);
      shared_.insert(value.id);
    }
    for (Node* node : graph_.order())
      if (!is_backward(node)) forward_.push_back(node);
    for (const Node* node : forward_)
      if (is_candidate(*node)) candidates_.insert(node);
  }

  // The values to keep.
  std::set<ValueId> choose() {
    std::set<ValueId> kept;
    uint64_t bytes = cut(candidates_, &kept);
    if (!options_.budget || bytes <= *options_.budget) return kept;
    tight_ = true;
    const std::vector<const Node*> order = by_work();
    const auto with_first = [&](size_t count) {
      std::set<const Node*> candidates = candidates_;
      candidates.insert(order.begin(), order.begin() + static_cast<long>(count));
      kept.clear();
      return cut(candidates, &kept);
    };
    bytes = with_first(order.size());
    check(bytes <= *options_.budget,
          "memory_budget is {} bytes; with everything recomputed that can be, the backward still "
          "reads {} bytes of the forward",
          *options_.budget, bytes);
    size_t too_few = 0, enough = order.size();
    while (too_few + 1 < enough) {
      const size_t middle = (too_few + enough) / 2;
      (with_first(middle) <= *options_.budget ? enough : too_few) = middle;
    }
    with_first(enough);
    return kept;
  }

  // Whether the budget asked for more than what is cheap.
  bool is_tight() const { return tight_; }

 private:
  // Recomputed without being asked: it costs no pass over memory of its own.
  bool is_candidate(const Node& node) const {
    if (must_keep(node) || is_shared(node)) return false;
    if (is_free(node) || node.recompute) return true;
    if (!node.schema->is_elementwise() || node.is("ort::Dropout")) return false;
    if (follows_region(node)) return false;
    const auto readers = backward_readers(node);
    return is_cheap(node) || std::all_of(readers.begin(), readers.end(), [](const Node* reader) {
             return reader->schema->is_elementwise();
           });
  }

  uint64_t count_of(ValueId id) const {
    const Type& type = graph_.value(id).type();
    uint64_t count = 1;
    for (const Dim& dim : type.dims.value_or(Dims{})) count *= size_of(dim);
    return count;
  }

  uint64_t size_of(const Dim& dim) const {
    std::set<std::string> names;
    dim.collect_symbols(names);
    Symbols symbols = options_.sizes;
    for (const std::string& name : names) symbols.emplace(name, kGuessedSize);
    return static_cast<uint64_t>(std::max<int64_t>(dim.evaluate(symbols), 0));
  }

  // An owner's writes to it are to be seen, so it is read where it is; that costs nothing.
  bool is_shared(const Node& node) const {
    return std::any_of(node.out.begin(), node.out.end(),
                       [&](ValueId id) { return shared_.count(id) != 0; });
  }

  uint64_t bytes_of(ValueId id) const {
    if (shared_.count(id)) return 0;
    if (graph_.value(id).type().kind != Type::Kind::tensor) return 1;
    return std::max<uint64_t>(count_of(id) * ort::size_of(graph_.value(id).dtype()), 1);
  }

  // Operations for each byte that need not be kept: of a product, twice the length of its sums.
  uint64_t work(const Node& node) const {
    const auto last = [&](size_t i) { return size_of(node.input(i).dims().back()); };
    if (node.op == "MatMul" || node.op == "Linear" || node.op == "Gemm") return 2 * last(0);
    if (node.op == "Attention")
      return 4 * size_of(node.input(1).dim(3 - node.attrs.i("heads_axis")));
    if (node.op.starts_with("Conv") || node.op.ends_with("LSTM") || node.op == "Einsum")
      return 2 * count_of(node.in[1]) / std::max<uint64_t>(size_of(node.input(1).dim(0)), 1);
    return node.schema->is_elementwise() ? 1 : 8;
  }

  // Those that are not candidates anyway, the least work for a byte first; equal ones in an order
  // that spreads over the forward, so that what stays kept lies between layers, evenly.
  std::vector<const Node*> by_work() const {
    std::map<uint64_t, std::vector<const Node*>> found;
    for (const Node* node : forward_)
      if (!candidates_.count(node) && !must_keep(*node) && !is_shared(*node))
        found[work(*node)].push_back(node);
    std::vector<const Node*> order;
    for (const auto& [work, nodes] : found) {
      const size_t top = std::bit_ceil(nodes.size());
      for (size_t i = 0; i < top; ++i)  // bits turned round: 0, 1/2, 1/4, 3/4, 1/8, ...
        if (const size_t at = reversed(i, top); at < nodes.size()) order.push_back(nodes[at]);
    }
    return order;
  }

  static size_t reversed(size_t i, size_t top) {
    size_t result = 0;
    for (size_t bit = 1; bit < top; bit *= 2) result = result * 2 + ((i & bit) != 0);
    return result;
  }

  // A value is two nodes of the network; to keep it is to cut the edge between them.
  uint64_t cut(const std::set<const Node*>& candidates, std::set<ValueId>* kept) const {
    const size_t source = graph_.value_count() * 2, sink = source + 1;
    FlowNetwork network(sink + 1);
    const auto in = [](ValueId id) { return static_cast<size_t>(id) * 2; };
    for (const ValueId id : graph_.inputs()) {
      network.add_edge(source, in(id), FlowNetwork::kUnbounded);
      network.add_edge(in(id), in(id) + 1, options_.copied.count(id) ? bytes_of(id) : 0);
      connect_readers(network, candidates, id, sink);
    }
    for (const Node* node : forward_)
      for (const ValueId id : node->out) {
        if (id == kNone) continue;
        const bool candidate = candidates.count(node) != 0;
        const bool never = candidate && (node->recompute || is_free(*node));
        if (!candidate) network.add_edge(source, in(id), FlowNetwork::kUnbounded);
        network.add_edge(in(id), in(id) + 1, never ? FlowNetwork::kUnbounded : bytes_of(id));
        connect_readers(network, candidates, id, sink);
      }
    const uint64_t bytes = network.maximise(source, sink);
    const std::vector<bool> side = network.sink_side(sink);
    for (const Node* node : forward_)
      for (const ValueId id : node->out)
        if (id != kNone && !side[in(id)] && side[in(id) + 1]) kept->insert(id);
    return bytes;
  }

  // From a value to the sink where the backward reads it, and to what is recomputed from it.
  void connect_readers(FlowNetwork& network, const std::set<const Node*>& candidates, ValueId id,
                       size_t sink) const {
    const size_t out = static_cast<size_t>(id) * 2 + 1;
    for (const Use& use : graph_.value(id).uses()) {
      if (is_backward(use.node)) network.add_edge(out, sink, FlowNetwork::kUnbounded);
      if (is_backward(use.node) || !candidates.count(use.node)) continue;
      for (const ValueId made : use.node->out)
        if (made != kNone)
          network.add_edge(out, static_cast<size_t>(made) * 2, FlowNetwork::kUnbounded);
    }
  }

  Graph& graph_;
  const StashOptions& options_;
  std::vector<Node*> forward_;
  std::set<const Node*> candidates_;
  std::set<ValueId> shared_;
  bool tight_ = false;
};

// Clones what makes the values that the backward reads and that are not kept.
class Recomputation {
 public:
  Recomputation(Graph& graph, std::set<ValueId> kept, bool to_save_memory)
      : graph_(graph), kept_(std::move(kept)), to_save_memory_(to_save_memory) {}

  size_t run() {
    std::vector<Node*> forward;
    for (Node* node : graph_.order())
      if (!is_backward(node)) forward.push_back(node);
    // Later nodes first: recomputing one may ask for its operands, which come before it.
    for (auto it = forward.rbegin(); it != forward.rend(); ++it)
      if (is_wanted(**it)) clone(**it);
    return count_;
  }

 private:
  bool is_recomputed(ValueId id) const { return id != kNone && !kept_.count(id); }

  bool is_wanted(const Node& node) const {
    return std::any_of(node.out.begin(), node.out.end(), [&](ValueId id) {
      if (!is_recomputed(id)) return false;
      const auto& uses = graph_.value(id).uses();
      return std::any_of(uses.begin(), uses.end(),
                         [](const Use& use) { return is_backward(use.node); });
    });
  }

  void clone(Node& node) {
    Insertion here(graph_, first_backward_reader(node), "recompute");
    std::vector<Value> in;
    for (size_t i = 0; i < node.in.size(); ++i) in.push_back(node.input(i));
    const std::string op = node.qualified();
    const std::vector<Value> twins =
        graph_.emit(op, in, node.attrs, static_cast<int>(node.out.size()));
    int segment = 1 << 30;  // the twin runs in the segment of its first reader
    for (size_t i = 0; i < node.out.size(); ++i)
      if (is_recomputed(node.out[i]))
        segment = std::min(segment, redirect(node.output(i), twins[i]));
    twins[0].producer()->segment = segment;
    twins[0].producer()->recompute = node.recompute || to_save_memory_;
    ++count_;
  }

  Node* first_backward_reader(const Node& node) const {
    std::set<const Node*> readers;
    for (const ValueId id : node.out)
      if (is_recomputed(id))
        for (const Use& use : graph_.value(id).uses())
          if (is_backward(use.node)) readers.insert(use.node);
    Node* first = nullptr;
    for (Node* at = graph_.first(); at && !first; at = at->next)
      if (readers.count(at)) first = at;
    return first;
  }

  // Makes the backward read `to`; returns the first segment that does.
  int redirect(Value from, Value to) {
    int segment = 1 << 30;
    const std::vector<Use> uses = from.uses();
    for (const Use& use : uses) {
      if (!is_backward(use.node) || use.node == to.producer()) continue;
      segment = std::min(segment, use.node->segment);
      graph_.replace_input(use.node, static_cast<size_t>(use.index), to);
    }
    return segment;
  }

  Graph& graph_;
  std::set<ValueId> kept_;
  bool to_save_memory_;
  size_t count_ = 0;
};

}  // namespace

size_t choose_stash(Graph& graph, const StashOptions& options) {
  Choice choice(graph, options);
  std::set<ValueId> kept = choice.choose();
  return Recomputation(graph, std::move(kept), choice.is_tight()).run();
}

}  // namespace ort::grad
