// Region growing by merging groups: each group knows every node it depends on, through whole
// groups.
#include "csrc/passes/regions.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace ort {
namespace {

// A set of node numbers; only words that were touched are walked.
class NodeSet {
 public:
  explicit NodeSet(size_t size) : words_((size + 63) / 64) {}
  void add(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  bool has(size_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  void add(const NodeSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  void remove(const NodeSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= ~other.words_[w];
  }
  bool meets(const NodeSet& other, size_t from, size_t to) const {
    for (size_t w = from / 64; w <= to / 64; ++w)
      if ((words_[w] & other.words_[w]) != 0) return true;
    return false;
  }

 private:
  std::vector<uint64_t> words_;
};

struct Group {
  std::vector<size_t> members;  // sorted
  NodeSet own, before;          // its nodes; the nodes outside that it depends on
};

class Grower {
 public:
  Grower(Graph& graph, const std::function<bool(const Node&)>& eligible, const Joinable& joinable);
  std::vector<std::vector<Node*>> grow();

 private:
  Group& group(size_t node) { return *groups_[node]; }
  bool can_merge(const Group& a, const Group& b);
  bool merge(size_t a, size_t b);
  void merge_with_producers(size_t node);
  void merge_readers_of(ValueId value);

  Graph& graph_;
  const Joinable& joinable_;
  std::vector<Node*> order_;
  std::unordered_map<const Node*, size_t> number_;
  std::vector<bool> eligible_;
  std::vector<std::shared_ptr<Group>> groups_;
};

Grower::Grower(Graph& graph, const std::function<bool(const Node&)>& eligible,
               const Joinable& joinable)
    : graph_(graph), joinable_(joinable), order_(graph.order()) {
  const size_t count = order_.size();
  for (size_t i = 0; i < count; ++i) {
    number_[order_[i]] = i;
    eligible_.push_back(eligible(*order_[i]));
    auto group = std::make_shared<Group>(Group{{i}, NodeSet(count), NodeSet(count)});
    group->own.add(i);
    for (const ValueId id : order_[i]->in) {
      const Node* producer = id == kNone ? nullptr : graph.value(id).producer();
      if (!producer) continue;
      const size_t p = number_.at(producer);
      group->before.add(p);
      group->before.add(groups_[p]->before);
    }
    groups_.push_back(std::move(group));
  }
}

// Together they must not depend on a node outside that depends on either.
bool Grower::can_merge(const Group& a, const Group& b) {
  const size_t low = std::min(a.members.front(), b.members.front());
  const size_t high = std::max(a.members.back(), b.members.back());
  for (size_t i = 0; i < order_.size(); ++i) {
    if (!a.before.has(i) && !b.before.has(i)) continue;
    if (a.own.has(i) || b.own.has(i)) continue;
    const NodeSet& before = groups_[i]->before;
    if (before.meets(a.own, low, high) || before.meets(b.own, low, high)) return false;
  }
  return true;
}

bool Grower::merge(size_t left, size_t right) {
  if (groups_[left] == groups_[right] || !eligible_[left] || !eligible_[right]) return false;
  if (order_[left]->segment != order_[right]->segment) return false;
  const std::shared_ptr<Group> a = groups_[left], b = groups_[right];
  std::vector<size_t> members;
  std::merge(a->members.begin(), a->members.end(), b->members.begin(), b->members.end(),
             std::back_inserter(members));
  std::vector<Node*> nodes;
  for (const size_t m : members) nodes.push_back(order_[m]);
  if (!joinable_(nodes) || !can_merge(*a, *b)) return false;
  a->own.add(b->own);
  a->before.add(b->before);
  a->before.remove(a->own);
  a->members = std::move(members);
  for (const size_t m : a->members) groups_[m] = a;
  // Who depended on a part now depends on the whole.
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& other = *groups_[i];
    if (&other == a.get() || other.members.front() != i) continue;
    if (!other.before.meets(a->own, a->members.front(), a->members.back())) continue;
    other.before.add(a->own);
    other.before.add(a->before);
  }
  return true;
}

void Grower::merge_with_producers(size_t node) {
  for (const ValueId id : order_[node]->in) {
    const Node* producer = id == kNone ? nullptr : graph_.value(id).producer();
    if (producer) merge(number_.at(producer), node);
  }
}

bool is_one_number(Value value) {
  const auto& dims = value.type().dims;
  return dims && std::all_of(dims->begin(), dims->end(), [](const Dim& d) { return d.is(1); });
}

void Grower::merge_readers_of(ValueId value) {
  std::vector<size_t> readers;
  for (const Use& use : graph_.value(value).uses()) readers.push_back(number_.at(use.node));
  std::sort(readers.begin(), readers.end());
  for (size_t i = 0; i < readers.size(); ++i)
    for (size_t k = i + 1; k < readers.size(); ++k) merge(readers[i], readers[k]);
}

std::vector<std::vector<Node*>> Grower::grow() {
  for (size_t i = 0; i < order_.size(); ++i)
    if (eligible_[i]) merge_with_producers(i);
  // Layers that are recomputed to save memory must not be tied together by a number they all read.
  const bool saves_memory =
      std::any_of(order_.begin(), order_.end(), [](const Node* node) { return node->recompute; });
  std::set<ValueId> shared;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (!eligible_[i]) continue;
    for (const ValueId id : order_[i]->in)
      if (id != kNone && graph_.value(id).uses().size() > 1 &&
          !(saves_memory && is_one_number(graph_.value(id))) && shared.insert(id).second)
        merge_readers_of(id);
  }
  std::vector<std::vector<Node*>> regions;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (!eligible_[i] || group(i).members.front() != i) continue;
    std::vector<Node*>& region = regions.emplace_back();
    for (const size_t m : group(i).members) region.push_back(order_[m]);
  }
  return regions;
}

}  // namespace

Boundary boundary_of(std::span<Node* const> nodes) {
  const std::set<const Node*> inside(nodes.begin(), nodes.end());
  std::set<ValueId> seen;
  Boundary boundary;
  for (const Node* node : nodes) {
    const Graph& graph = *node->graph;
    for (const ValueId id : node->in) {
      if (id == kNone || !seen.insert(id).second) continue;
      const Node* producer = graph.value(id).producer();
      if (!producer || !inside.count(producer)) boundary.in.push_back(id);
    }
    for (const ValueId id : node->out) {
      if (id == kNone) continue;
      seen.insert(id);
      const auto& uses = graph.value(id).uses();
      const bool leaves = graph.output_used(id) ||
                          std::any_of(uses.begin(), uses.end(),
                                      [&](const Use& use) { return !inside.count(use.node); });
      if (leaves) boundary.out.push_back(id);
    }
  }
  return boundary;
}

std::vector<std::vector<Node*>> grow_regions(Graph& graph,
                                             const std::function<bool(const Node&)>& eligible,
                                             const Joinable& joinable) {
  return Grower(graph, eligible, joinable).grow();
}

}  // namespace ort
