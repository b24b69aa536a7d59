// Estimates from the costs that ops' entries tell and the sizes of operands.
#include "csrc/plan/estimate.h"

namespace ort {
namespace {

size_t bytes_of(const Operands& operands) {
  size_t bytes = 0;
  for (const Operand& type : operands.types)
    bytes += static_cast<size_t>(element_count(type.sizes)) * size_of(type.dtype);
  return bytes;
}

// Elements that are read and written, and the arithmetic between.
double operations(const Node& node, const Sized::SizeOf& size) {
  const Sized sized(node, size);
  double count = node.schema->operations(sized);
  for (size_t i = 0; i < node.in.size(); ++i) count += sized.x(i);
  for (size_t i = 0; i < node.out.size(); ++i) count += sized.y(i);
  return count;
}

}  // namespace

size_t bytes_of(const Plan& plan) {
  return plan.arena_bytes() + bytes_of(plan.outputs);
}

double estimated_operations(const LoweredGraph& lowered, const Symbols& symbols) {
  const Sized::SizeOf size = [&](const Dim& dim) {
    return static_cast<double>(dim.evaluate(symbols));
  };
  double sum = 0;
  for (const Claim& claim : lowered.partition.claims)
    for (const Node* node : claim.region.nodes) sum += operations(*node, size);
  return sum;
}

}  // namespace ort
