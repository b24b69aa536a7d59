// The leaves behind outputs in the order in which a backward comes to them, and how a node has to
// hand over gradients for the engine to take them so. Called by autograd_history.py and by
// captured_state.cpp.
#include "csrc/torch_bridge/autograd/accumulated.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace ort::bridge {
namespace {

using torch::autograd::Node;

// Of equals the engine's queue (torch/csrc/autograd/engine.h) takes what a heap has on top, so this
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
std::unordered_map<Node*, int> dependencies(std::vector<Node*> waiting) {
  std::unordered_map<Node*, int> found;
  for (Node* root : waiting) found[root];
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    for (const auto& edge : node->next_edges())
      if (Node* next = edge.function.get()) {
        if (!found.count(next)) waiting.push_back(next);
        ++found[next];
      }
  }
  return found;
}

}  // namespace

std::vector<at::Tensor> accumulated(const std::vector<at::Tensor>& outputs) {
  std::vector<Node*> roots;
  for (const auto& output : outputs)
    if (Node* node = output.grad_fn().get();
        node && std::find(roots.begin(), roots.end(), node) == roots.end())
      roots.push_back(node);
  auto left = dependencies(roots);
  ReadyQueue<Node*> queue;
  for (Node* root : roots)
    if (left[root] == 0) queue.push({root->sequence_nr(), root});
  std::vector<at::Tensor> found;
  while (!queue.empty()) {
    Node* node = queue.top().what;
    queue.pop();
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      found.push_back(leaf->variable);
    for (const auto& edge : node->next_edges())
      if (Node* next = edge.function.get(); next && --left[next] == 0)
        queue.push({next->sequence_nr(), next});
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
