// Region growing by merging groups. The groups are kept in an order in which each comes after those
// that it depends on, so that only what lies between two groups can forbid to merge them.
#include "csrc/passes/regions.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace ort {
namespace {

constexpr int kNoGroup = -1;
constexpr size_t kMostBetween = 20000;  // groups between two that are still compared
constexpr size_t kMostReaders = 200;    // readers after it that a reader is tried with

struct Group {
  std::vector<size_t> members;  // sorted
  size_t place = 0;             // in the order
  bool after = false;           // of a sweep: it depends on the group that the sweep began with
};

class Grower {
 public:
  Grower(Graph& graph, const std::function<bool(const Node&)>& eligible, const Joinable& joinable);
  std::vector<std::vector<Node*>> grow();

 private:
  const Group& group(size_t node) const { return groups_[static_cast<size_t>(group_of_[node])]; }
  bool depends_on_marked(int group) const;
  bool make_adjacent(int first, int last);
  bool merge(size_t a, size_t b);
  void merge_with_producers(size_t node);
  void merge_readers_of(ValueId value);

  Graph& graph_;
  const Joinable& joinable_;
  std::vector<Node*> order_;
  std::unordered_map<const Node*, size_t> number_;
  std::vector<bool> eligible_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;  // by node
  std::vector<int> at_;        // by place: the group there, or none
};

Grower::Grower(Graph& graph, const std::function<bool(const Node&)>& eligible,
               const Joinable& joinable)
    : graph_(graph), joinable_(joinable), order_(graph.order()) {
  for (size_t i = 0; i < order_.size(); ++i) {
    number_[order_[i]] = i;
    eligible_.push_back(eligible(*order_[i]));
    groups_.push_back({{i}, i, false});
    group_of_.push_back(static_cast<int>(i));
    at_.push_back(static_cast<int>(i));
  }
}

bool Grower::depends_on_marked(int group) const {
  for (const size_t member : groups_[static_cast<size_t>(group)].members)
    for (const ValueId id : order_[member]->in) {
      const Node* producer = id == kNone ? nullptr : graph_.value(id).producer();
      if (!producer) continue;
      const int before = group_of_[number_.at(producer)];
      if (before != group && groups_[static_cast<size_t>(before)].after) return true;
    }
  return false;
}

// Moves what lies between and depends on `first` behind `last`, unless `last` depends on it.
bool Grower::make_adjacent(int first, int last) {
  const size_t begin = groups_[static_cast<size_t>(first)].place,
               end = groups_[static_cast<size_t>(last)].place;
  if (end - begin > kMostBetween) return false;
  groups_[static_cast<size_t>(first)].after = true;
  std::vector<int> free, bound;
  for (size_t place = begin + 1; place < end; ++place) {
    const int between = at_[place];
    if (between == kNoGroup) continue;
    Group& other = groups_[static_cast<size_t>(between)];
    other.after = depends_on_marked(between);
    (other.after ? bound : free).push_back(between);
  }
  groups_[static_cast<size_t>(first)].after = false;  // a direct dependence is what joins them
  const bool apart = depends_on_marked(last);
  for (const int other : bound) groups_[static_cast<size_t>(other)].after = false;
  if (apart) return false;
  size_t place = end + 1;
  const auto put = [&](int group) {
    at_[--place] = group;
    groups_[static_cast<size_t>(group)].place = place;
  };
  for (size_t i = bound.size(); i-- > 0;) put(bound[i]);
  put(last);
  for (size_t i = free.size(); i-- > 0;) put(free[i]);
  while (place > begin) at_[--place] = kNoGroup;
  return true;
}

bool Grower::merge(size_t left, size_t right) {
  int first = group_of_[left], last = group_of_[right];
  if (first == last || !eligible_[left] || !eligible_[right]) return false;
  if (order_[left]->segment != order_[right]->segment) return false;
  const auto& a = groups_[static_cast<size_t>(first)].members;
  const auto& b = groups_[static_cast<size_t>(last)].members;
  std::vector<size_t> members;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(members));
  std::vector<Node*> nodes;
  for (const size_t m : members) nodes.push_back(order_[m]);
  if (!joinable_(nodes)) return false;
  if (groups_[static_cast<size_t>(first)].place > groups_[static_cast<size_t>(last)].place)
    std::swap(first, last);
  if (!make_adjacent(first, last)) return false;
  for (const size_t m : members) group_of_[m] = last;
  groups_[static_cast<size_t>(first)].members.clear();
  groups_[static_cast<size_t>(last)].members = std::move(members);
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
    for (size_t k = i + 1; k < std::min(readers.size(), i + kMostReaders); ++k)
      merge(readers[i], readers[k]);
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
