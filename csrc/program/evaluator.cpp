// Evaluation of one node: views keep their bytes, the rest is a kernel prepared and run once.
#include "csrc/program/evaluator.h"

#include <algorithm>

namespace ort {

Verdict ProviderEvaluator::can_evaluate(const Node& node) const {
  return node.schema->is_view() ? Verdict::yes() : provider_.can_run(node);
}

const Provider& ProviderEvaluator::who(const Node& node, std::span<const Tensor> in) const {
  constexpr int64_t kLarge = 1 << 14;  // elements; below, a kernel's preparation is the longest
  constexpr TypeSet kWhole = kIntegers | kBool;
  bool whole = true;
  int64_t most = 0;
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i)) continue;
    whole = whole && (kWhole & bit(in[i].dtype)) != 0;
    most = std::max(most, in[i].count());
  }
  for (size_t i = 0; i < node.out.size(); ++i)
    whole = whole && (node.out[i] == kNone || (kWhole & bit(node.output(i).dtype())) != 0);
  if (whole && most >= kLarge)
    for (const Provider* each : quick_)
      if (each->can_run(node)) return *each;
  return provider_;
}

std::vector<Tensor> ProviderEvaluator::evaluate(const Node& node, std::span<const Tensor> in) {
  std::vector<Tensor> out(node.out.size());
  static const Symbols none;
  if (node.schema->is_view()) {
    out[0] = in[0];
    out[0].sizes = sizes_of(node.output().dims(), none);
    return out;
  }
  Binding binding;
  binding.symbols = &none;
  std::vector<void*> pointers;
  for (size_t i = 0; i < node.in.size(); ++i) {
    const bool present = node.has_input(i);
    binding.in.push_back(
        {in[i].dtype, in[i].sizes, present, present ? Constant(in[i]) : Constant()});
    pointers.push_back(in[i].data);
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    const bool present = node.out[i] != kNone;
    if (present)
      out[i] = Tensor::empty(node.output(i).dtype(), sizes_of(node.output(i).dims(), none));
    binding.out.push_back({out[i].dtype, out[i].sizes, present});
    pointers.push_back(out[i].data);
  }
  const auto kernel = who(node, in).prepare(region_of(const_cast<Node&>(node)), binding).finish();
  std::vector<uint8_t> scratch(kernel->scratch_bytes() + 64);
  void* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  kernel->run({pointers.data(), pointers.data() + node.in.size(), aligned});
  for (Tensor& result : out) result = own_strings(result);
  return out;
}

}  // namespace ort
