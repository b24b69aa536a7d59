// Estimates by the nature of ops and the sizes of operands alone.
#include "csrc/plan/estimate.h"

#include <algorithm>
#include <cmath>

namespace ort {
namespace {

size_t bytes_of(const Operands& operands) {
  size_t bytes = 0;
  for (const Operand& type : operands.types)
    bytes += static_cast<size_t>(element_count(type.sizes)) * size_of(type.dtype);
  return bytes;
}

double elements(Value value, const Symbols& symbols) {
  double count = 1;
  if (value && value.type().dims)
    for (const Dim& dim : *value.type().dims) count *= static_cast<double>(dim.evaluate(symbols));
  return value ? count : 0;
}

// Of a window that slides over the output: its elements.
double window(const Node& node) {
  double count = 1;
  if (node.attrs.has("kernel_shape"))
    for (const int64_t size : node.attrs.ints("kernel_shape")) count *= static_cast<double>(size);
  return count;
}

double operations(const Node& node, const Symbols& symbols) {
  std::vector<double> in;
  double read = 0, written = 0;
  for (size_t i = 0; i < node.in.size(); ++i) {
    const bool floats = node.has_input(i) && is_floating(node.input(i).dtype());
    read += elements(node.input(i), symbols);
    if (floats) in.push_back(elements(node.input(i), symbols));
  }
  for (size_t i = 0; i < node.out.size(); ++i) written += elements(node.output(i), symbols);
  if (node.schema->is_elementwise() || in.size() < 2) return read + written * window(node);
  // [M, K] by [K, N] to [M, N]: the root of the three sizes' product is M K N.
  std::sort(in.begin(), in.end(), std::greater<>());
  return read + written + std::sqrt(in[0] * in[1] * elements(node.output(), symbols));
}

}  // namespace

size_t bytes_of(const Plan& plan) {
  return plan.arena_bytes() + bytes_of(plan.inputs) + bytes_of(plan.outputs);
}

double estimated_operations(const Layout& layout, const Symbols& symbols) {
  double sum = 0;
  for (const Claim& claim : layout.partition.claims)
    for (const Node* node : claim.region.nodes) sum += operations(*node, symbols);
  return sum;
}

}  // namespace ort
