// Torch's autograd graph: edges along which gradients go, nodes of ours in it, and what a walk over
// it sees. autograd, ddp and providers/aten know torch's nodes by this alone.
//
// Of torch, in every version from 2.11 on: torch::autograd::Node and Edge with their hooks and
// sequence numbers (torch/csrc/autograd/function.h), and the edge of a tensor and the node of a
// leaf (variable.h). A node is held by shared_ptr, and from 2.13 on by intrusive_ptr.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ort::bridge {

// A node of torch's or of ours: to be compared, and given to the functions of this folder.
using AnyNode = torch::autograd::Node;

// Where a gradient goes: an input of a node, which this holds. torch.autograd.graph has the name.
class GradientEdge {
 public:
  GradientEdge() = default;
  template <class Held>  // what make_node gives
  GradientEdge(const Held& node, uint32_t input) : edge_(node, input) {}

  // Of a tensor: its node's, a leaf's own, or none.
  static GradientEdge of(const at::Tensor& tensor) {
    return GradientEdge(torch::autograd::impl::gradient_edge(tensor));
  }
  // The node that accumulates into a leaf; none where it needs no gradient.
  static GradientEdge into_leaf(const at::Tensor& leaf) {
    return {torch::autograd::impl::grad_accumulator(leaf), 0};
  }
  // Which somebody else holds.
  static GradientEdge into(AnyNode& node, uint32_t input) { return {node.getptr(), input}; }

  bool is_valid() const { return edge_.is_valid(); }
  AnyNode* node() const { return edge_.function.get(); }
  uint32_t input() const { return edge_.input_nr; }
  // The gradient of `tensor` goes here from now on.
  void lead(const at::Tensor& tensor) const {
    torch::autograd::impl::set_gradient_edge(tensor, edge_);
  }

 private:
  friend class EdgeList;
  explicit GradientEdge(torch::autograd::Edge edge) : edge_(std::move(edge)) {}
  torch::autograd::Edge edge_;
};

class EdgeList {
 public:
  void reserve(size_t n) { edges_.reserve(n); }
  size_t size() const { return edges_.size(); }
  bool empty() const { return edges_.empty(); }
  void add(GradientEdge edge) { edges_.push_back(std::move(edge.edge_)); }

 private:
  friend class AutogradNode;
  friend std::vector<at::Tensor> run_backward(const EdgeList&, const std::vector<at::Tensor>&, bool,
                                              const EdgeList&);
  friend void accumulate(GradientEdge, const at::Tensor&);
  torch::autograd::edge_list edges_;
};

// A node of ours: from the gradients of its inputs to one for each of its edges.
class AutogradNode : public torch::autograd::Node {
 public:
  using Gradients = std::vector<at::Tensor>;

  // The number of a new input, for gradients of such a tensor or, of none, for undefined ones.
  uint32_t add_input(const at::Tensor& like) {
    return like.defined() ? add_input_metadata(like) : add_input_metadata(undefined_input());
  }
  // Before another node leads here: torch numbers nodes by their depth.
  void lead_to(EdgeList next) { set_next_edges(std::move(next.edges_)); }
  // At any time; the depth stays.
  void exchange_next(EdgeList& next) { std::swap(next_edges(), next.edges_); }
  bool has_hook_after() { return !post_hooks().empty(); }

 protected:
  Gradients apply(Gradients&& gradients) override = 0;
};

template <class T, class... Args>
auto make_node(const Args&... args) {
  using Held = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Held, std::shared_ptr<torch::autograd::Node>>)
    return std::shared_ptr<T>(new T(args...), [](auto* node) { deleteNode(node); });
  else
    return c10::make_intrusive<T>(args...);
}

// --- a walk ------------------------------------------------------------------------------------

// The node that made a tensor; null of a leaf.
inline AnyNode* node_of(const at::Tensor& tensor) {
  return tensor.grad_fn().get();
}

// The leaf into which a node accumulates; null of any other node.
const at::Tensor* leaf_of(const AnyNode& node);

// Calls f(node) on each that `node` leads to, once an edge.
template <class F>
void for_next(const AnyNode& node, F f) {
  for (const auto& edge : node.next_edges())
    if (AnyNode* next = edge.function.get()) f(next);
}

// Of nodes that wait, torch's engine runs the one with the highest.
inline uint64_t priority_of(const AnyNode& node) {
  return node.sequence_nr();
}

// Calls `failed` where a hook that now sees what comes to `node` raises, before the error goes on.
void watch_hooks(AnyNode& node, const std::function<void()>& failed);

struct HooksOf {
  bool on_tensor, before, retains_grad;  // that see what comes to a node
  bool after_accumulation;               // into a leaf
  size_t after;                          // how many
};

inline HooksOf hooks_of(AnyNode& node) {
  return {!node.tensor_pre_hooks().empty(), !node.pre_hooks().empty(),
          !node.retains_grad_hooks().empty(), node.tensor_post_acc_grad_hooks() != nullptr,
          node.post_hooks().size()};
}

}  // namespace ort::bridge
