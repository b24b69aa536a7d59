// Inference in bodies: captures, states, sizes that are known outside.
#include "csrc/ops/control_flow/body_types.h"

#include <algorithm>

namespace ort {
namespace {

void collect(const Type& type, std::set<std::string>& names) {
  if (type.inner) collect(*type.inner, names);
  for (const Dim& dim : type.dims.value_or(Dims{})) dim.collect_symbols(names);
}

}  // namespace

void Inside::take_captures() {
  c_.require(captures() <= c_.count() && captures() <= body_.inputs().size(),
             "a graph captures {} values, the node has {} inputs", captures(), c_.count());
  for (size_t i = 0; i < captures(); ++i) {
    const Value outer = c_.in(c_.count() - captures() + i), inner = input(own() + i);
    body_.set_type(inner, outer.type());
    body_.set_contents(inner, outer.graph->contents(outer.id));
  }
}

void Inside::set_input(size_t i, Type type) {
  body_.set_type(input(i), std::move(type));
  body_.set_contents(input(i), std::nullopt);
}

Type Inside::outside(const Type& type) const {
  Type result = type;
  if (result.inner) result.inner = std::make_shared<const Type>(outside(*result.inner));
  for (size_t i = 0; result.dims && i < result.dims->size(); ++i)
    if (!known_outside((*result.dims)[i])) (*result.dims)[i] = c_.fresh();
  return result;
}

bool Inside::known_outside(const Dim& dim) const {
  std::set<std::string> names, known;
  dim.collect_symbols(names);
  for (size_t i = 0; i < c_.count(); ++i)
    if (c_.has(i)) collect(c_.type(i), known);
  for (size_t i = 0; i < c_.count(); ++i)
    if (c_.has(i))
      for (const Dim& element : c_.contents(i).value_or(Dims{})) element.collect_symbols(known);
  return std::includes(known.begin(), known.end(), names.begin(), names.end());
}

std::optional<Type> joined(const Type& a, const Type& b, const std::function<Dim()>& fresh) {
  if (a.kind != b.kind && (a.kind == Type::Kind::optional || b.kind == Type::Kind::optional)) {
    const bool first = a.kind == Type::Kind::optional;
    const auto held = joined(first ? a.held() : a, first ? b : b.held(), fresh);
    return held ? std::optional(Type::optional(*held)) : std::nullopt;
  }
  if (a.kind != b.kind || a.dtype != b.dtype) return std::nullopt;
  Type result = a;
  if (a.inner && b.inner) {
    const auto inner = joined(*a.inner, *b.inner, fresh);
    if (!inner) return std::nullopt;
    result.inner = std::make_shared<const Type>(*inner);
  }
  if (!a.dims || !b.dims || a.dims->size() != b.dims->size()) {
    result.dims.reset();
    return result;
  }
  for (size_t i = 0; i < a.dims->size(); ++i)
    if ((*a.dims)[i] != (*b.dims)[i]) (*result.dims)[i] = fresh();
  return result;
}

Type item_of(InferContext& c, const Type& holder) {
  Type item = holder.held();
  if (item.dims)
    for (Dim& dim : *item.dims)
      if (!dim.value()) dim = c.fresh();
  return item;
}

States::States(InferContext& c, Graph& body, size_t first_input, size_t first_body_input,
               size_t count, size_t first_output)
    : c_(c),
      body_(body),
      inside_(c, body),
      first_(first_body_input),
      count_(count),
      first_output_(first_output) {
  for (size_t i = 0; i < count; ++i) {
    c.require(c.has(first_input + i), "state {} is absent", i);
    types_.push_back(c.type(first_input + i));
  }
}

void States::settle() {
  for (bool changed = true; changed;) {
    for (size_t i = 0; i < count_; ++i) inside_.set_input(first_ + i, types_[i]);
    inside_.infer();
    changed = false;
    for (size_t i = 0; i < count_; ++i) changed = open(i) || changed;
  }
}

// Opens what the body gives another size than it took; whether something was.
bool States::open(size_t i) {
  const Type& given = inside_.output(first_output_ + i).type();
  const auto together = joined(types_[i], given, [&] {
    const Dim dim = body_.fresh_symbol();
    opened_.insert(*dim.symbol_name());
    return dim;
  });
  c_.require(together.has_value(), "state {} is {} before a trip and {} after it", i,
             types_[i].text(), given.text());
  return take(types_[i], *together);
}

// A size that was open stays as it is.
bool States::take(Type& type, const Type& together) {
  bool changed = false;
  if (type.inner && together.inner) {
    Type inner = *type.inner;
    changed = take(inner, *together.inner);
    type.inner = std::make_shared<const Type>(std::move(inner));
  }
  if (!type.dims) return changed;
  if (!together.dims) {
    type.dims.reset();
    return true;
  }
  for (size_t d = 0; d < type.dims->size(); ++d) {
    Dim& dim = (*type.dims)[d];
    const auto name = dim.symbol_name();
    if (dim == (*together.dims)[d] || (name && opened_.count(*name))) continue;
    dim = (*together.dims)[d];
    changed = true;
  }
  return changed;
}

}  // namespace ort
