// The leaves behind outputs in the order in which a backward comes to them, and how a node has to
// hand over gradients for the engine to take them so. Called by autograd_history.py and by
// captured_state.cpp.
#include "csrc/torch_bridge/autograd/accumulated.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "csrc/torch_bridge/internals/autograd_graph.h"

namespace ort::bridge {
namespace {

// Of equals the queue of torch's engine takes what a heap has on top, so this
// is a heap too.
template <class T>
struct Waiting {
  uint64_t priority;
  T what;
};
template <class T>
struct Later {
  bool operator()(const Waiting<T>& a, const Waiting<T>& b) const {
    return a.priority < b.priority;
  }
};
template <class T>
using ReadyQueue = std::priority_queue<Waiting<T>, std::vector<Waiting<T>>, Later<T>>;

// How many edges lead to each node.
std::unordered_map<AnyNode*, int> dependencies(std::vector<AnyNode*> waiting) {
  std::unordered_map<AnyNode*, int> found;
  for (AnyNode* root : waiting) found[root];
  while (!waiting.empty()) {
    AnyNode* node = waiting.back();
    waiting.pop_back();
    for_next(*node, [&](AnyNode* next) {
      if (!found.count(next)) waiting.push_back(next);
      ++found[next];
    });
  }
  return found;
}

}  // namespace

std::vector<at::Tensor> accumulated(const std::vector<at::Tensor>& outputs) {
  std::vector<AnyNode*> roots;
  for (const auto& output : outputs)
    if (AnyNode* node = node_of(output);
        node && std::find(roots.begin(), roots.end(), node) == roots.end())
      roots.push_back(node);
  auto left = dependencies(roots);
  ReadyQueue<AnyNode*> queue;
  for (AnyNode* root : roots)
    if (left[root] == 0) queue.push({priority_of(*root), root});
  std::vector<at::Tensor> found;
  while (!queue.empty()) {
    AnyNode* node = queue.top().what;
    queue.pop();
    if (const at::Tensor* leaf = leaf_of(*node)) found.push_back(*leaf);
    for_next(*node, [&](AnyNode* next) {
      if (--left[next] == 0) queue.push({priority_of(*next), next});
    });
  }
  return found;
}

Indices handed_over_for(const Indices& wanted, bool has_next) {
  ReadyQueue<size_t> queue;
  if (has_next) queue.push({0, wanted.size()});
  for (size_t place = 0; place < wanted.size(); ++place) queue.push({1, place});
  Indices order(wanted.size());
  for (const size_t one : wanted) {
    order[queue.top().what] = one;
    queue.pop();
  }
  return order;
}

}  // namespace ort::bridge
