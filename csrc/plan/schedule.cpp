// List scheduling over the claims; a cycle means that a region was not convex.
#include "csrc/plan/schedule.h"

#include <algorithm>
#include <map>
#include <queue>

namespace ort {
namespace {

struct Key {
  int segment;
  size_t position;
  size_t claim;
  friend bool operator>(const Key& a, const Key& b) {
    return std::tie(a.segment, a.position) > std::tie(b.segment, b.position);
  }
};

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

bool has_effect(const Claim& claim) {
  return std::any_of(claim.region.nodes.begin(), claim.region.nodes.end(),
                     [](const Node* node) { return node->schema->has_effect(*node); });
}

}  // namespace

std::vector<size_t> schedule(const Graph& graph, const std::vector<Claim>& claims) {
  std::map<const Node*, size_t> position;
  for (const Node* node : graph.order()) position.emplace(node, position.size());
  const Producers producers(graph, claims);
  std::vector<std::vector<size_t>> users(claims.size());
  std::vector<int> waiting(claims.size(), 0);
  std::vector<Key> keys;
  std::vector<std::pair<size_t, size_t>> effects;  // position, claim
  for (size_t i = 0; i < claims.size(); ++i) {
    std::set<int> before;
    Key key{-1, 0, i};
    for (const Node* node : claims[i].region.nodes) {
      for (size_t k = 0; k < node->in.size(); ++k)
        if (node->has_input(k)) before.insert(producers.of(node->input(k)));
      key.segment = std::max(key.segment, node->segment);
      key.position = std::max(key.position, position.at(node));
    }
    if (has_effect(claims[i])) effects.emplace_back(key.position, i);
    before.erase(-1);
    before.erase(static_cast<int>(i));
    for (const int b : before) users[static_cast<size_t>(b)].push_back(i);
    waiting[i] = static_cast<int>(before.size());
    keys.push_back(key);
  }
  // effects happen in program order
  std::sort(effects.begin(), effects.end());
  for (size_t e = 1; e < effects.size(); ++e) {
    users[effects[e - 1].second].push_back(effects[e].second);
    ++waiting[effects[e].second];
  }
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  for (size_t i = 0; i < claims.size(); ++i)
    if (waiting[i] == 0) ready.push(keys[i]);
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t claim = ready.top().claim;
    ready.pop();
    order.push_back(claim);
    for (const size_t user : users[claim])
      if (--waiting[user] == 0) ready.push(keys[user]);
  }
  check(order.size() == claims.size(), "schedule: {} of {} regions wait for each other",
        claims.size() - order.size(), claims.size());
  return order;
}

}  // namespace ort
