// Asks about a float32 twin of a node in a graph of its own; the node itself is changed in place.
#include "csrc/plan/wrap_in_casts.h"

#include <algorithm>
#include <map>

#include "csrc/graph/expr.h"

namespace ort {
namespace {

constexpr std::string_view kBy = "wrap_in_casts";

bool is_half(const Type& type) {
  return type.kind == Type::Kind::tensor && is_half(type.dtype);
}

bool all_tensors(const Node& node, const std::vector<ValueId>& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](ValueId id) {
    return id == kNone || node.graph->value(id).type().kind == Type::Kind::tensor;
  });
}

bool any_half(const Node& node, const std::vector<ValueId>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](ValueId id) {
    return id != kNone && is_half(node.graph->value(id).type());
  });
}

// A number that a kernel may want to know stays a constant.
std::optional<Tensor> number_of(Value value) {
  const auto number = scalar_of(value);
  if (!number) return std::nullopt;
  const Tensor& half = *constant_of(value);
  Tensor wide = Tensor::empty(DType::f32, half.sizes);
  set_element(wide, 0, *number);
  return wide;
}

// Its operands in a graph of their own: constants, what is known of sizes, and inputs for the rest.
std::vector<Value> twins_of_inputs(const Node& node, Graph& scratch) {
  std::vector<Value> in;
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Value value = node.input(i);
    if (!value) {
      in.emplace_back();
      continue;
    }
    Type type = value.type();
    const Tensor* constant = constant_of(value);
    if (is_half(type)) {
      type.dtype = DType::f32;
      const auto number = number_of(value);
      in.push_back(number ? scratch.constant(*number) : scratch.input(format("x{}", i), type));
    } else if (constant) {
      in.push_back(scratch.constant(*constant));
    } else {
      in.push_back(scratch.input(format("x{}", i), type));
      if (const auto& contents = node.graph->contents(value.id))
        scratch.set_contents(in.back(), *contents);
    }
  }
  return in;
}

// The node with float32 in place of halves; null where there is no such node.
Node* twin_of(const Node& node, Graph& scratch) {
  if (node.schema->is_foreign() || node.owns_bodies() || node.out.empty()) return nullptr;
  if (!all_tensors(node, node.in) || !all_tensors(node, node.out)) return nullptr;
  try {
    const std::vector<Value> in = twins_of_inputs(node, scratch);
    const auto outputs = static_cast<int>(node.out.size());
    Node* twin = scratch.emit(node.qualified(), in, node.attrs, outputs)[0].producer();
    for (size_t i = 0; i < node.out.size(); ++i)
      if (node.out[i] == kNone) twin->out[i] = kNone;
    return any_half(*twin, twin->out) ? nullptr : twin;
  } catch (const NotAccepted&) {
    return nullptr;  // float32 is none of its dtypes
  }
}

class Wrapping {
 public:
  explicit Wrapping(Graph& graph) : graph_(graph) {}
  void wrap(Node& node);
  void join();

 private:
  void widen_inputs(Node& node);
  void narrow_output(Node& node, size_t i);

  Graph& graph_;
  // A value's cast is read by all wrapped nodes of its segment: the halves are what is kept.
  std::map<std::pair<ValueId, int>, Value> widened_;
  std::vector<Value> narrowed_;
};

void Wrapping::widen_inputs(Node& node) {
  const Insertion here(graph_, &node, kBy);
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Value value = node.input(i);
    if (!value || !is_half(value.type())) continue;
    const auto [found, missing] = widened_.try_emplace({value.id, node.segment});
    if (missing) {
      const auto number = number_of(value);
      found->second = number ? graph_.constant(*number) : cast(value, DType::f32);
    }
    graph_.replace_input(&node, i, found->second);
  }
}

void Wrapping::narrow_output(Node& node, size_t i) {
  const Value wide = node.output(i);
  Type type = wide.type();
  const DType half = type.dtype;
  type.dtype = DType::f32;
  graph_.set_type(wide, type);
  const Insertion here(graph_, &node, kBy);
  graph_.context.before = node.next;
  const Value narrow = cast(wide, half);
  Node* back = narrow.producer();
  graph_.replace(wide, narrow, kBy);
  graph_.replace_input(back, 0, wide);
  graph_.set_name(wide, "");
  narrowed_.push_back(narrow);
}

void Wrapping::wrap(Node& node) {
  widen_inputs(node);
  for (size_t i = 0; i < node.out.size(); ++i)
    if (node.out[i] != kNone && is_half(node.output(i).type())) narrow_output(node, i);
}

void Wrapping::join() {
  for (const Value narrow : narrowed_) {
    const Node* back = narrow.producer();
    const auto again = widened_.find({narrow.id, back->segment});
    const bool alone = narrow.uses().size() == 1 && !graph_.output_used(narrow.id);
    if (again == widened_.end() || !alone) continue;
    graph_.replace(again->second, back->input(0), kBy);
    graph_.erase(again->second.producer());
    graph_.erase(narrow.producer());
  }
}

}  // namespace

bool only_in_float32(const Node& node, std::span<const Provider* const> providers) {
  if (!needs_provider(node) || !any_half(node, node.in)) return false;
  Graph scratch(node.graph->ops());
  std::optional<Node*> twin;
  for (const Provider* provider : providers) {
    if (provider->can_run(node)) return false;
    if (!twin) twin = twin_of(node, scratch);
    if (*twin && provider->can_run(**twin)) return true;
  }
  return false;
}

std::vector<Refusal> wrap_in_casts(Graph& graph, std::span<const Provider* const> providers) {
  std::vector<Refusal> refusals;
  Wrapping wrapping(graph);
  for (Node* node : graph.order()) {
    if (!only_in_float32(*node, providers)) continue;
    add_refusals(*node, providers, refusals);
    wrapping.wrap(*node);
  }
  wrapping.join();
  return refusals;
}

}  // namespace ort
