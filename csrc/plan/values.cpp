// Evaluating types and shape operands.
#include "csrc/plan/values.h"

#include "csrc/passes/alias.h"

namespace ort {

BoundValues::BoundValues(const LoweredGraph& lowered, const Symbols& symbols)
    : graph_(*lowered.graph), symbols_(symbols), sources_(sources(*lowered.graph)) {
  const auto add = [&](const Node* node, ValueId value, Tensor tensor) {
    fixed.push_back(value);
    constant_[node->out[0]] = constants.size();
    constants.push_back(std::move(tensor));
  };
  for (const Node* node : graph_.order()) {
    if (node->schema->is_constant()) add(node, node->out[0], *constant_of(node->output()));
    if (!node->schema->is_sizes()) continue;
    Tensor tensor = Tensor::of(numbers_of(std::get<Dims>(*node->attrs.find("dims")), symbols));
    if (node->attrs.i("scalar")) tensor.sizes.clear();
    add(node, kNone, std::move(tensor));
  }
}

bool BoundValues::is_opaque(ValueId id) const {
  return graph_.value(id).type().kind == Type::Kind::opaque;
}

Operand BoundValues::operand(ValueId id) const {
  Operand result;
  if (id == kNone) return result;
  const Type& type = graph_.value(id).type();
  result.present = true;
  if (is_opaque(id)) {
    result.layout = Layout::opaque();
    return result;
  }
  result.dtype = type.dtype;
  result.sizes = sizes_of(*type.dims, symbols_);
  check(is_addressable(result.sizes, size_of(type.dtype)), "shape {} exceeds any memory",
        result.sizes);
  if (const auto index = constant(source(id))) result.constant = Constant(constants[*index]);
  return result;
}

size_t BoundValues::bytes(ValueId id) const {
  const Operand operand = this->operand(id);
  return operand.layout.bytes(operand.sizes, operand.dtype);
}

std::optional<size_t> BoundValues::constant(ValueId source) const {
  const auto found = constant_.find(source);
  return found == constant_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ort
