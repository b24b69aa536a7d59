// Dinic's algorithm (1970): blocking flows over the levels of a breadth-first search.
#include "gradient_graph/min_cut.h"

#include <algorithm>

namespace ort::grad {

void FlowNetwork::add_edge(size_t from, size_t to, uint64_t capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(size_t source, size_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<size_t> queue{source};
  for (size_t i = 0; i < queue.size(); ++i)
    for (const size_t e : edges_of_[queue[i]]) {
      ++steps_;
      if (edges_[e].left == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[queue[i]] + 1;
      queue.push_back(edges_[e].to);
    }
  return level_[sink] >= 0;
}

// Depth first, on a stack of its own: a chain of nodes is a path as long.
uint64_t FlowNetwork::push(size_t source, size_t sink) {
  struct Visit {
    size_t node;
    uint64_t most, pushed;
  };
  std::vector<Visit> path{{source, kUnbounded, 0}};
  for (;;) {
    Visit& at = path.back();
    if (at.node == sink) at.pushed = at.most;
    const size_t to = at.pushed == at.most ? kNowhere : next_node(at.node);
    if (to != kNowhere) {
      path.push_back({to, std::min(at.most - at.pushed, current_edge(at.node).left), 0});
      continue;
    }
    const uint64_t part = at.pushed;
    path.pop_back();
    if (path.empty()) return part;
    Visit& before = path.back();
    const size_t e = edges_of_[before.node][next_[before.node]];
    edges_[e].left -= part;
    edges_[e ^ 1].left += part;
    before.pushed += part;
    if (before.pushed < before.most) ++next_[before.node];
  }
}

// Where the first edge leads, from the current one on, that has capacity left and goes down a
// level.
size_t FlowNetwork::next_node(size_t node) {
  for (size_t& i = next_[node]; i < edges_of_[node].size(); ++i) {
    const Edge& edge = current_edge(node);
    ++steps_;
    if (edge.left > 0 && level_[edge.to] == level_[node] + 1) return edge.to;
  }
  return kNowhere;
}

uint64_t FlowNetwork::maximise(size_t source, size_t sink) {
  uint64_t flow = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    flow += push(source, sink);
  }
  return flow;
}

std::vector<bool> FlowNetwork::sink_side(size_t sink) const {
  std::vector<bool> side(edges_of_.size(), false);
  side[sink] = true;
  std::vector<size_t> stack{sink};
  while (!stack.empty()) {
    const size_t node = stack.back();
    stack.pop_back();
    for (const size_t e : edges_of_[node]) {
      const size_t from = edges_[e].to;
      if (edges_[e ^ 1].left == 0 || side[from]) continue;
      side[from] = true;
      stack.push_back(from);
    }
  }
  return side;
}

}  // namespace ort::grad
