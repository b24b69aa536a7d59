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

// What a pass over memory hides: operations for each element.
constexpr double kHidden = 12;

bool is_opaque(const Node& node, ValueId id) {
  return id != kNone && node.graph->value(id).type().kind != Type::Kind::tensor;
}

// What may not run twice, reads what can be read once, or whose result is no memory of ours. A
// checkpoint's user asked for it.
bool must_keep(const Node& node) {
  const auto opaque = [&](ValueId id) { return is_opaque(node, id); };
  if (node.schema->has_effect(node)) return true;
  if (std::any_of(node.in.begin(), node.in.end(), opaque)) return true;
  if (node.recompute) return false;
  return node.schema->is_foreign() || std::any_of(node.out.begin(), node.out.end(), opaque);
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
    for (Node* node : graph_.order())
      if (!is_backward(node)) forward_.push_back(node);
    find_roots();
    for (const size_t i : options.shared) shared_.insert(root_of(graph.outputs().at(i).value));
    for (const size_t i : options.written) written_.insert(root_of(graph.outputs().at(i).value));
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
  // The value whose bytes each view of it is, in one walk, as a file may be a chain of views.
  void find_roots() {
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.value_count()); ++id)
      roots_.push_back(id);
    for (const Node* node : forward_)
      if (node->schema->is_view() && node->has_input(0))
        roots_[static_cast<size_t>(node->out[0])] = root_of(node->in[0]);
  }
  ValueId root_of(ValueId id) const { return roots_[static_cast<size_t>(id)]; }

  // Recomputed, it would ask for the checkpoint region before it, and that one for all before.
  bool follows_region(const Node& node) const {
    return std::any_of(node.in.begin(), node.in.end(), [&](ValueId id) {
      const Node* producer = id == kNone ? nullptr : graph_.value(root_of(id)).producer();
      return producer && producer->recompute;
    });
  }

  // Recomputed without being asked: it costs no pass over memory of its own.
  bool is_candidate(const Node& node) const {
    if (must_keep(node) || is_shared(node) || reads_written(node)) return false;
    if (node.schema->is_free() || node.recompute) return true;
    if (!node.schema->is_elementwise() || work(node) > kHidden) return false;
    if (follows_region(node)) return false;
    const auto readers = backward_readers(node);
    return node.schema->is_cheap() ||
           std::all_of(readers.begin(), readers.end(),
                       [](const Node* reader) { return reader->schema->is_elementwise(); });
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

  // Operations for each element that need not be kept.
  double work(const Node& node) const {
    const Sized::SizeOf size = [this](const Dim& dim) { return static_cast<double>(size_of(dim)); };
    const Sized sized(node, size);
    return node.schema->operations(sized) / std::max(sized.y(), 1.0);
  }

  // An owner's writes to it are to be seen, so it is read where it is; that costs nothing.
  bool is_shared(const Node& node) const {
    return std::any_of(node.out.begin(), node.out.end(),
                       [&](ValueId id) { return shared_.count(id) != 0; });
  }

  // A later call may have written there: a view shows that in eager too, anything else does not.
  bool reads_written(const Node& node) const {
    return !node.schema->is_view() && std::any_of(node.in.begin(), node.in.end(), [&](ValueId id) {
      return id != kNone && written_.count(root_of(id)) != 0;
    });
  }

  uint64_t bytes_of(ValueId id) const {
    if (shared_.count(id)) return 0;
    if (graph_.value(id).type().kind != Type::Kind::tensor) return 1;
    return std::max<uint64_t>(count_of(id) * ort::size_of(graph_.value(id).dtype()), 1);
  }

  // Those that are not candidates anyway, the least work for an element first; equal ones in an
  // order that spreads over the forward, so that what stays kept lies between layers, evenly.
  std::vector<const Node*> by_work() const {
    std::map<double, std::vector<const Node*>> found;
    for (const Node* node : forward_)
      if (!candidates_.count(node) && !must_keep(*node) && !is_shared(*node) &&
          !reads_written(*node))
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
        const bool never = candidate && (node->recompute || node->schema->is_free());
        if (!candidate) network.add_edge(source, in(id), FlowNetwork::kUnbounded);
        network.add_edge(in(id), in(id) + 1, never ? FlowNetwork::kUnbounded : bytes_of(id));
        connect_readers(network, candidates, id, sink);
      }
    const uint64_t bytes = network.maximise(source, sink);
    if (options_.steps) *options_.steps += network.steps();
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
  std::vector<ValueId> roots_;
  std::set<ValueId> shared_, written_;
  bool tight_ = false;
};

// Clones what makes the values that the backward reads and that are not kept.
class Recomputation {
 public:
  Recomputation(Graph& graph, std::set<ValueId> kept, bool to_save_memory, size_t* steps)
      : graph_(graph), kept_(std::move(kept)), to_save_memory_(to_save_memory), steps_(steps) {}

  size_t run() {
    const std::vector<Node*> nodes = graph_.order();
    for (size_t i = 0; i < nodes.size(); ++i)
      if (is_backward(nodes[i])) readers_[nodes[i]] = {i, nodes[i]->segment};
    // Later nodes first: recomputing one asks for its operands, which come before it.
    std::vector<std::pair<Node*, Reader>> wanted;
    for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
      if (is_backward(*it)) continue;
      const Reader first = first_reader(**it);
      if (first.position == kNobody) continue;
      readers_[*it] = first;
      wanted.emplace_back(*it, first);
    }
    for (auto it = wanted.rbegin(); it != wanted.rend(); ++it)
      clone(*it->first, it->second, nodes[it->second.position]);
    return wanted.size();
  }

 private:
  // Where in program order the backward first reads a value, and the first segment that does.
  struct Reader {
    size_t position = kNobody;
    int segment = 1 << 30;
  };
  static constexpr size_t kNobody = ~size_t{0};

  bool is_recomputed(ValueId id) const { return id != kNone && !kept_.count(id); }

  // Of the backward's own nodes and of twins, which run where they are first read themselves.
  Reader first_reader(const Node& node) const {
    Reader first;
    for (const ValueId id : node.out) {
      if (!is_recomputed(id)) continue;
      for (const Use& use : graph_.value(id).uses()) {
        if (steps_) ++*steps_;
        const auto found = readers_.find(use.node);
        if (found == readers_.end()) continue;
        first.position = std::min(first.position, found->second.position);
        first.segment = std::min(first.segment, found->second.segment);
      }
    }
    return first;
  }

  Value twin_of(Value value) const {
    const auto found = twins_.find(value.id);
    return found == twins_.end() ? value : found->second;
  }

  void clone(Node& node, const Reader& reader, Node* before) {
    Insertion here(graph_, before, "recompute");
    std::vector<Value> in;
    for (size_t i = 0; i < node.in.size(); ++i) in.push_back(twin_of(node.input(i)));
    const std::vector<Value> twins = graph_.emit_copy(node, in);
    twins[0].producer()->part_of = node.part_of;
    twins[0].producer()->segment = reader.segment;
    twins[0].producer()->recompute = node.recompute || to_save_memory_;
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (!is_recomputed(node.out[i])) continue;
      twins_[node.out[i]] = twins[i];
      graph_.replace_for(node.output(i), twins[i],
                         [](const Node& reader) { return is_backward(&reader); });
    }
  }

  Graph& graph_;
  std::set<ValueId> kept_;
  bool to_save_memory_;
  size_t* steps_;
  std::map<const Node*, Reader> readers_;
  std::map<ValueId, Value> twins_;
};

}  // namespace

size_t choose_stash(Graph& graph, const StashOptions& options) {
  Choice choice(graph, options);
  std::set<ValueId> kept = choice.choose();
  return Recomputation(graph, std::move(kept), choice.is_tight(), options.steps).run();
}

}  // namespace ort::grad
