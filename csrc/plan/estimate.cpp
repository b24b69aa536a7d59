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

Sized::SizeOf sizes_under(const Symbols& symbols) {
  return [&symbols](const Dim& dim) { return static_cast<double>(dim.evaluate(symbols)); };
}

std::vector<std::string> texts(const Graph& graph, const std::vector<ValueId>& ids,
                               const Symbols& symbols) {
  std::vector<std::string> result;
  for (const ValueId id : ids) {
    Type type = id == kNone ? Type{} : graph.value(id).type();
    if (type.dims)
      for (Dim& dim : *type.dims) dim = Dim(dim.evaluate(symbols));
    result.push_back(id == kNone ? "" : type.text());
  }
  return result;
}

}  // namespace

size_t bytes_of(const Plan& plan) {
  return plan.arena_bytes() + bytes_of(plan.outputs);
}

double estimated_operations(const LoweredGraph& lowered, const Symbols& symbols) {
  const Sized::SizeOf size = sizes_under(symbols);
  double sum = 0;
  for (const Claim& claim : lowered.partition.claims)
    for (const Node* node : claim.region.nodes) sum += operations(*node, size);
  return sum;
}

StepEstimate estimate(const Plan& plan, const Step& step, const LoweredGraph& lowered,
                      const Symbols& symbols) {
  StepEstimate result;
  std::set<int> slots;
  for (int i = step.in; i < step.in + step.n_in; ++i)
    slots.insert(plan.operands[static_cast<size_t>(i)]);
  for (int i = step.out; i < step.out + step.n_out; ++i)
    slots.insert(plan.operands[static_cast<size_t>(i)]);
  slots.erase(-1);
  for (const int slot : slots)
    result.bytes += static_cast<double>(plan.slot_bytes[static_cast<size_t>(slot)]);
  if (step.claim < 0) return result;
  const Region& region = lowered.partition.claims[static_cast<size_t>(step.claim)].region;
  const Sized::SizeOf size = sizes_under(symbols);
  for (const Node* node : region.nodes)
    result.operations += node->schema->operations({*node, size});
  result.in = texts(*lowered.graph, region.in, symbols);
  result.out = texts(*lowered.graph, region.out, symbols);
  return result;
}

}  // namespace ort
