// List scheduling over the claims; a cycle means that a region was not convex. Between the start of
// a collective and the wait for it goes what can: the one runs first of what is ready, the other
// just before its first reader.
#include "csrc/plan/schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>

#include "csrc/passes/effect_order.h"

namespace ort {
namespace {

struct Key {
  int segment;
  int64_t position;
  size_t claim;
  friend bool operator>(const Key& a, const Key& b) {
    return std::tie(a.segment, a.position, a.claim) > std::tie(b.segment, b.position, b.claim);
  }
};

bool starts(const Node& node) {
  return node.schema->effect(node) == Effect::collective;
}

// It takes the handle that a start gives.
bool waits(const Node& node) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Value value = node.has_input(i) ? node.input(i) : Value{};
    if (value && value.producer() && value.type().kind == Type::Kind::opaque)
      return starts(*value.producer());
  }
  return false;
}

// Moves starts to the front of their segments, and waits to where they are first read.
void overlap_collectives(const std::vector<Claim>& claims,
                         const std::vector<std::vector<size_t>>& users, std::vector<Key>& keys) {
  const std::vector<Key> program = keys;
  for (size_t i = 0; i < claims.size(); ++i) {
    const Node& node = *claims[i].region.nodes.front();
    if (starts(node)) keys[i].position = -1;
    if (!waits(node)) continue;
    keys[i].position = std::numeric_limits<int64_t>::max();
    for (const size_t user : users[i])
      if (program[user].segment == keys[i].segment)
        keys[i].position = std::min(keys[i].position, program[user].position);
  }
}

// The claim that must run before a value is there, or -1; views pass their input's on. Found in one
// walk, as a file may be a chain of views.
class Producers {
 public:
  Producers(const Graph& graph, const std::vector<Claim>& claims) : of_(graph.value_count(), -1) {
    std::map<const Node*, int> owner;
    for (size_t i = 0; i < claims.size(); ++i)
      for (const Node* node : claims[i].region.nodes) owner[node] = static_cast<int>(i);
    for (const Node* node : graph.order()) {
      const auto found = owner.find(node);
      const int claim = found != owner.end() ? found->second
                        : node->has_input(0) ? of(node->input(0))
                                             : -1;
      for (const ValueId id : node->out)
        if (id != kNone) of_[static_cast<size_t>(id)] = claim;
    }
  }
  int of(Value value) const { return of_[static_cast<size_t>(value.id)]; }

 private:
  std::vector<int> of_;
};

// Each claim after those whose user it is, of those that are ready the one with the least key.
std::vector<size_t> in_order(const std::vector<std::vector<size_t>>& users,
                             std::vector<int> waiting, const std::vector<Key>& keys) {
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  for (size_t i = 0; i < keys.size(); ++i)
    if (waiting[i] == 0) ready.push(keys[i]);
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t claim = ready.top().claim;
    ready.pop();
    order.push_back(claim);
    for (const size_t user : users[claim])
      if (--waiting[user] == 0) ready.push(keys[user]);
  }
  check(order.size() == keys.size(), "schedule: {} of {} regions wait for each other",
        keys.size() - order.size(), keys.size());
  return order;
}

}  // namespace

std::vector<size_t> schedule(const Graph& graph, const std::vector<Claim>& claims) {
  std::map<const Node*, size_t> position;
  for (const Node* node : graph.order()) position.emplace(node, position.size());
  const Producers producers(graph, claims);
  std::vector<std::vector<size_t>> users(claims.size());
  std::vector<int> waiting(claims.size(), 0);
  std::vector<Key> keys;
  std::map<const Node*, size_t> with_effects;  // their claims
  for (size_t i = 0; i < claims.size(); ++i) {
    std::set<int> before;
    Key key{-1, 0, i};
    for (const Node* node : claims[i].region.nodes) {
      for (size_t k = 0; k < node->in.size(); ++k)
        if (node->has_input(k)) before.insert(producers.of(node->input(k)));
      key.segment = std::max(key.segment, node->segment);
      key.position = std::max(key.position, static_cast<int64_t>(position.at(node)));
      if (node->schema->has_effect(*node)) with_effects[node] = i;
    }
    before.erase(-1);
    before.erase(static_cast<int>(i));
    for (const int b : before) users[static_cast<size_t>(b)].push_back(i);
    waiting[i] = static_cast<int>(before.size());
    keys.push_back(key);
  }
  overlap_collectives(claims, users, keys);
  each_in_effect_order(graph, [&](const Node& earlier, const Node& later) {
    const size_t first = with_effects.at(&earlier), then = with_effects.at(&later);
    if (first == then) return;
    users[first].push_back(then);
    ++waiting[then];
  });
  return in_order(users, std::move(waiting), keys);
}

}  // namespace ort
