// Region growing by merging groups. The groups are kept in a topological order (Pearce & Kelly
// 2006): what one merge looks at are groups that lie between the two and depend on the first, or
// that the second depends on.
#include "csrc/passes/regions.h"

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "csrc/passes/effect_order.h"

namespace ort {
namespace {

constexpr size_t kMostSwept = 2000;   // groups between two that are looked at before they stay two
constexpr size_t kMostReaders = 200;  // readers after it that a reader is tried with

struct Group {
  std::vector<size_t> members;  // sorted
  size_t place = 0;             // in the order
  size_t met = 0;               // the last sweep that met it
  size_t through = 0;           // the last one that met it behind another group
  int refused = -1;             // the group that it was last not joined with,
  size_t refused_size = 0;      // and of how many nodes the two were
};

// The groups that depend on one, in their order, as far as has been asked. A merge ends it.
struct Sweep {
  using Place = std::pair<size_t, int>;  // of a group
  size_t id = 0;
  int first = -1;
  std::priority_queue<Place, std::vector<Place>, std::greater<>> ahead;
  std::vector<int> found;
};

class Grower {
 public:
  Grower(Graph& graph, const std::function<bool(const Node&)>& eligible, const Joinable& joinable,
         Growth growth);
  std::vector<std::vector<Node*>> grow();

 private:
  using Groups = std::vector<int>;
  Group& at(int group) { return groups_[static_cast<size_t>(group)]; }
  int group_of(const Node* node) const { return group_of_[number_.at(node)]; }
  void count(size_t steps = 1) const {
    if (growth_.steps) *growth_.steps += steps;
  }
  template <class F>
  void each_user(int group, F&& f);
  template <class F>
  void each_producer(int group, F&& f);
  bool are_apart(int first, int last);
  bool producers_between(int first, int last, Groups& found);
  bool make_adjacent(int first, int last);
  bool are_joinable(int first, int last);
  bool merge(size_t a, size_t b);
  void merge_with_producers(size_t node);
  void merge_readers_of(ValueId value);

  Graph& graph_;
  const Joinable& joinable_;
  Growth growth_;
  std::vector<Node*> order_;
  std::unordered_map<const Node*, size_t> number_;
  std::vector<bool> eligible_;
  // By node: those that effects order after it, and before.
  std::vector<std::vector<size_t>> then_, before_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;  // by node
  Sweep sweep_;
  size_t sweeps_ = 0;
};

Grower::Grower(Graph& graph, const std::function<bool(const Node&)>& eligible,
               const Joinable& joinable, Growth growth)
    : graph_(graph), joinable_(joinable), growth_(growth), order_(graph.order()) {
  groups_.resize(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    number_[order_[i]] = i;
    eligible_.push_back(eligible(*order_[i]));
    groups_[i].members = {i};
    groups_[i].place = i;
    group_of_.push_back(static_cast<int>(i));
  }
  then_.resize(order_.size());
  before_.resize(order_.size());
  each_in_effect_order(graph, [&](const Node& first, const Node& then) {
    then_[number_.at(&first)].push_back(number_.at(&then));
    before_[number_.at(&then)].push_back(number_.at(&first));
  });
}

template <class F>
void Grower::each_user(int group, F&& f) {
  for (const size_t member : at(group).members) {
    for (const ValueId id : order_[member]->out) {
      if (id == kNone) continue;
      const auto& uses = graph_.value(id).uses();
      count(uses.size());
      for (const Use& use : uses)
        if (const int user = group_of(use.node); user != group) f(user);
    }
    for (const size_t then : then_[member])
      if (const int user = group_of_[then]; user != group) f(user);
  }
}

template <class F>
void Grower::each_producer(int group, F&& f) {
  for (const size_t member : at(group).members) {
    count(order_[member]->in.size());
    for (const ValueId id : order_[member]->in) {
      const Node* producer = id == kNone ? nullptr : graph_.value(id).producer();
      if (producer && group_of(producer) != group) f(group_of(producer));
    }
    for (const size_t before : before_[member])
      if (group_of_[before] != group) f(group_of_[before]);
  }
}

// Whether `last` depends on `first` through other groups, or there are too many to tell.
bool Grower::are_apart(int first, int last) {
  if (sweep_.first != first) {
    sweep_ = {++sweeps_, first, {}, {}};
    each_user(first, [&](int user) {
      if (std::exchange(at(user).met, sweep_.id) != sweep_.id)
        sweep_.ahead.emplace(at(user).place, user);
    });
  }
  while (!sweep_.ahead.empty() && sweep_.ahead.top().first < at(last).place) {
    if (sweep_.found.size() == kMostSwept) return true;
    const int group = sweep_.ahead.top().second;
    sweep_.ahead.pop();
    sweep_.found.push_back(group);
    each_user(group, [&](int user) {
      at(user).through = sweep_.id;
      if (std::exchange(at(user).met, sweep_.id) != sweep_.id)
        sweep_.ahead.emplace(at(user).place, user);
    });
  }
  return at(last).through == sweep_.id;
}

// The groups after `first` that `last` depends on; false when there are too many.
bool Grower::producers_between(int first, int last, Groups& found) {
  const size_t sweep = ++sweeps_, begin = at(first).place;
  sweep_.first = -1;  // its marks are used anew
  const auto meet = [&](int group) {
    if (at(group).place <= begin || std::exchange(at(group).met, sweep) == sweep) return;
    found.push_back(group);
  };
  each_producer(last, meet);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found.size() > kMostSwept) return false;
    each_producer(found[i], meet);
  }
  return true;
}

// Gives `last`, which is not apart, a place at which `first` may be too.
bool Grower::make_adjacent(int first, int last) {
  const auto by_place = [&](int a, int b) { return at(a).place < at(b).place; };
  const auto end = std::lower_bound(sweep_.found.begin(), sweep_.found.end(), last, by_place);
  if (end == sweep_.found.begin()) return true;
  Groups order, users(sweep_.found.begin(), end);
  if (!producers_between(first, last, order)) return false;
  if (order.empty()) {
    at(last).place = at(first).place;
    return true;
  }
  std::sort(order.begin(), order.end(), by_place);
  order.push_back(last);
  order.insert(order.end(), users.begin(), users.end());
  std::vector<size_t> places;
  for (const int group : order) places.push_back(at(group).place);
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < order.size(); ++i) at(order[i]).place = places[i];
  return true;
}

bool Grower::are_joinable(int first, int last) {
  const auto &a = at(first).members, &b = at(last).members;
  std::vector<size_t> members;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(members));
  std::vector<Node*> nodes;
  for (const size_t m : members) nodes.push_back(order_[m]);
  count(nodes.size());
  return joinable_(nodes);
}

bool Grower::merge(size_t left, size_t right) {
  count();
  int first = group_of_[left], last = group_of_[right];
  if (first == last || !eligible_[left] || !eligible_[right]) return false;
  if (order_[left]->segment != order_[right]->segment) return false;
  if (at(first).place > at(last).place) std::swap(first, last);
  const size_t size = at(first).members.size() + at(last).members.size();
  if (size > growth_.most) return false;
  if (at(last).refused == first && at(last).refused_size == size) return false;
  if (are_apart(first, last) || !are_joinable(first, last) || !make_adjacent(first, last)) {
    at(last).refused = first;
    at(last).refused_size = size;
    return false;
  }
  sweep_.first = -1;
  std::vector<size_t> members;
  std::merge(at(first).members.begin(), at(first).members.end(), at(last).members.begin(),
             at(last).members.end(), std::back_inserter(members));
  for (const size_t m : at(first).members) group_of_[m] = last;
  at(first).members.clear();
  at(last).members = std::move(members);
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
    const auto& members = at(group_of_[i]).members;
    if (!eligible_[i] || members.front() != i) continue;
    std::vector<Node*>& region = regions.emplace_back();
    for (const size_t m : members) region.push_back(order_[m]);
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
                                             const Joinable& joinable, Growth growth) {
  return Grower(graph, eligible, joinable, growth).grow();
}

}  // namespace ort
