// Building and finding op schemas; what shape rules see.
#include "csrc/graph/schema.h"

#include <algorithm>

#include "csrc/graph/expr.h"

namespace ort {

OpSchema& OpSchema::in(std::string name, TypeSet types, std::string same) {
  inputs_.push_back({std::move(name), types, std::move(same)});
  return *this;
}
OpSchema& OpSchema::in_optional(std::string name, TypeSet types, std::string same) {
  inputs_.push_back({std::move(name), types, std::move(same), true});
  return *this;
}
OpSchema& OpSchema::in_variadic(std::string name, TypeSet types, std::string same) {
  inputs_.push_back({std::move(name), types, std::move(same), false, true});
  return *this;
}
OpSchema& OpSchema::host() {
  check(!inputs_.empty(), "[{}] it has no input to mark", qualified());
  inputs_.back().host = true;
  return *this;
}
OpSchema& OpSchema::out(std::string name, TypeSet types, std::string same) {
  outputs_.push_back({std::move(name), types, std::move(same)});
  return *this;
}
OpSchema& OpSchema::out_variadic(std::string name) {
  outputs_.push_back({std::move(name), kAny, "T", false, true});
  return *this;
}
OpSchema& OpSchema::applies(std::string name) {
  applied_.push_back(std::move(name));
  return *this;
}
OpSchema& OpSchema::names_values(std::string attr) {
  if (naming_values_.empty()) attr_ours("captures");
  naming_values_.push_back(std::move(attr));
  return *this;
}
OpSchema& OpSchema::dtype_by(std::string attr) {
  check(!outputs_.empty(), "[{}] it has no result to mark", qualified());
  outputs_.back().by_attr = std::move(attr);
  return *this;
}
OpSchema& OpSchema::attr(std::string name, Attr otherwise) {
  attrs_.push_back({std::move(name), std::move(otherwise)});
  return *this;
}
OpSchema& OpSchema::attr_optional(std::string name) {
  attrs_.push_back({std::move(name), std::nullopt});
  return *this;
}
OpSchema& OpSchema::attr_required(std::string name) {
  attrs_.push_back({std::move(name), std::nullopt, true});
  return *this;
}
OpSchema& OpSchema::attr_ours(std::string name) {
  attrs_.push_back({std::move(name), std::nullopt, false, true});
  return *this;
}

namespace {

// The dtype of an element-wise output: bool where the schema says so, else that of the first input
// with the output's letter.
DType elementwise_dtype(const InferContext& c) {
  const OpSchema& schema = *c.node().schema;
  const OpSchema::Port& out = schema.outputs()[0];
  if (out.types == kBool) return DType::boolean;
  for (size_t i = 0; i < c.count(); ++i)
    if (c.has(i) && schema.input_port(i)->same == out.same) return c.dtype(i);
  return c.dtype(0);
}

// Where the numbers overflow, or grow beyond what a size may be, they are known when it runs.
std::optional<Dim> combined(const OpSchema& schema, const Dim& a, const Dim& b) {
  try {
    return schema.combine_sizes()(a, b);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void combine_contents(InferContext& c) {
  const auto a = c.contents(0), b = c.contents(1);
  if (!a || !b || a->empty() || b->empty()) return;
  if (a->size() != b->size() && a->size() != 1 && b->size() != 1) return;
  Dims result;
  for (size_t i = 0; i < std::max(a->size(), b->size()); ++i) {
    auto dim =
        combined(*c.node().schema, (*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]);
    if (!dim) return;
    result.push_back(std::move(*dim));
  }
  c.out_contents(0, std::move(result));
}

void infer_elementwise(InferContext& c) {
  std::optional<Dims> dims = Dims{};
  for (size_t i = 0; i < c.count() && dims; ++i) {
    if (!c.has(i)) continue;
    if (!c.ranked(i)) {
      dims.reset();
      break;
    }
    dims = c.broadcast(*dims, c.dims(i), "shapes");
  }
  c.require(c.count() > 0 && c.has(0), "it has no first input");
  c.out(0, elementwise_dtype(c), std::move(dims));
  if (c.node().schema->combine_sizes() && c.count() == 2 && is_integer(c.dtype(0)))
    combine_contents(c);
}

}  // namespace

OpSchema& OpSchema::elementwise() {
  nature_ = Nature::elementwise;
  if (!shape_) shape_ = infer_elementwise;
  return *this;
}
OpSchema& OpSchema::commutative() {
  commutative_ = true;
  return *this;
}
OpSchema& OpSchema::view() {
  nature_ = Nature::view;
  return *this;
}
OpSchema& OpSchema::constant() {
  nature_ = Nature::constant;
  return *this;
}
OpSchema& OpSchema::sizes() {
  nature_ = Nature::sizes;
  return *this;
}
OpSchema& OpSchema::permutation() {
  nature_ = Nature::permutation;
  return *this;
}
OpSchema& OpSchema::foreign() {
  nature_ = Nature::foreign;
  return *this;
}
OpSchema& OpSchema::effect(Effect effect) {
  effect_ = [effect](const Node&) { return effect; };
  return *this;
}
OpSchema& OpSchema::effect(EffectOf effect) {
  effect_ = std::move(effect);
  return *this;
}

OpSchema& OpSchema::users_backward(std::function<bool(const Node&)> when) {
  users_backward_ = std::move(when);
  return *this;
}

OpSchema& OpSchema::linear_gradient(std::function<bool(const Node&)> when) {
  linear_ = std::move(when);
  return *this;
}
OpSchema& OpSchema::cost(double each) {
  cost_ = [each](const Sized& node) { return each * node.y(); };
  return *this;
}
OpSchema& OpSchema::cost(Cost cost) {
  cost_ = std::move(cost);
  return *this;
}
OpSchema& OpSchema::cheap() {
  cheap_ = true;
  return *this;
}
OpSchema& OpSchema::computes_in(DType dtype) {
  computes_in_ = dtype;
  return *this;
}
OpSchema& OpSchema::computes_in(std::string attr) {
  computes_in_attr_ = std::move(attr);
  return *this;
}
OpSchema& OpSchema::computes_in_operands() {
  in_operands_ = true;
  return *this;
}
std::vector<double> OpSchema::Joins::numbers_of(const Attrs& attrs) const {
  std::vector<double> values;
  for (const std::string& name : numbers) values.push_back(attrs.f(name));
  return values;
}
OpSchema& OpSchema::epilogue(Epilogue epilogue, Attrs when, std::vector<std::string> numbers) {
  epilogues_.push_back({epilogue, std::move(when), std::move(numbers)});
  return *this;
}
OpSchema& OpSchema::siblings(SiblingsOf of) {
  siblings_ = std::move(of);
  return *this;
}
OpSchema& OpSchema::standard_as(Standard form) {
  standard_ = std::move(form);
  return *this;
}
OpSchema& OpSchema::on_numbers(Numbered numbered) {
  numbered_ = std::move(numbered);
  return *this;
}
OpSchema& OpSchema::shape(Shape shape) {
  shape_ = std::move(shape);
  return *this;
}
OpSchema& OpSchema::computed_by(ItemFunction function) {
  function_ = std::move(function);
  return *this;
}
OpSchema& OpSchema::on_sizes(Combine combine) {
  combine_sizes_ = std::move(combine);
  return *this;
}
OpSchema& OpSchema::body(std::string name) {
  if (bodies_.empty()) {
    attr("captures", int64_t{0});
    attrs_.back().ours = true;
    attr_ours("history");
  }
  attr_ours(name + "_kept");
  bodies_.push_back(std::move(name));
  return *this;
}
OpSchema& OpSchema::body_inputs(BodyInputs types) {
  body_inputs_ = std::move(types);
  return *this;
}
OpSchema& OpSchema::body_places(BodyPlaces places) {
  body_places_ = places;
  return *this;
}
OpSchema& OpSchema::allocates() {
  allocates_ = true;
  return *this;
}
OpSchema& OpSchema::allocates(std::function<bool(const Node&)> when) {
  allocates_when_ = std::move(when);
  return *this;
}
OpSchema& OpSchema::since(int opset) {
  since_ = opset;
  return *this;
}
OpSchema& OpSchema::not_differentiable() {
  differentiable_ = false;
  return *this;
}
OpSchema& OpSchema::differentiable_inputs(std::vector<int> inputs) {
  differentiable_inputs_ = std::move(inputs);
  return *this;
}

TypeSet bit(const Type& type) {
  switch (type.kind) {
    case Type::Kind::sequence:
      return kSequence;
    case Type::Kind::optional:
      return kOptional;
    case Type::Kind::map:
      return kMap;
    default:
      return bit(type.dtype);
  }
}

bool OpSchema::differentiable(size_t input) const {
  if (!differentiable_) return false;
  if (!differentiable_inputs_) return true;
  return std::find(differentiable_inputs_->begin(), differentiable_inputs_->end(),
                   static_cast<int>(input)) != differentiable_inputs_->end();
}

const OpSchema::Port* OpSchema::input_port(size_t i) const {
  if (i < inputs_.size()) return &inputs_[i];
  return !inputs_.empty() && inputs_.back().variadic ? &inputs_.back() : nullptr;
}

OpSchema& OpSet::op(std::string_view qualified) {
  const size_t colons = qualified.rfind("::");
  const bool plain = colons == std::string_view::npos;
  auto& slot = ops_[std::string(qualified)];
  check(!slot, "op '{}' is declared twice", qualified);
  slot = std::make_shared<OpSchema>(std::string(plain ? "" : qualified.substr(0, colons)),
                                    std::string(plain ? qualified : qualified.substr(colons + 2)));
  return *slot;
}

std::shared_ptr<const OpSet> OpSet::with(const OpSet& set, std::shared_ptr<const OpSchema> op) {
  check(!set.ops_.count(op->qualified()), "op '{}' is known: no function can take its place",
        op->qualified());
  const auto more = std::make_shared<OpSet>();
  more->ops_ = set.ops_;
  more->given_ = set.given_;
  more->base_ = &set.base();
  Versions& versions = more->given_[op->qualified()];
  versions.insert_or_assign(op->since_opset(), std::move(op));
  return more;
}

const OpSchema* OpSet::find_given(std::string_view qualified, int opset) const {
  const auto found = given_.find(qualified);
  if (found == given_.end()) return nullptr;
  const auto newer = found->second.upper_bound(opset);
  return newer == found->second.begin() ? nullptr : std::prev(newer)->second.get();
}

const OpSchema* OpSet::find(std::string_view qualified) const {
  const auto found = ops_.find(qualified);
  if (found != ops_.end()) return found->second.get();
  // "aten::*" is every operator of its domain: the name is the node's op.
  const size_t colons = qualified.find("::");
  if (colons == std::string_view::npos) return nullptr;
  const auto whole = ops_.find(std::string(qualified.substr(0, colons)) + "::*");
  return whole == ops_.end() ? nullptr : whole->second.get();
}

const OpSchema& OpSet::get(std::string_view qualified) const {
  const OpSchema* schema = find(qualified);
  check(schema != nullptr, "unknown op '{}'", qualified);
  return *schema;
}

std::vector<const OpSchema*> OpSet::all() const {
  std::vector<const OpSchema*> schemas;
  for (const auto& [name, schema] : ops_) schemas.push_back(schema.get());
  return schemas;
}

Value OpSet::activated(Value x, const Attrs& product) const {
  const Epilogue epilogue = epilogue_of(product);
  const std::vector<double> numbers = epilogue_numbers_of(product);
  if (epilogue == Epilogue::none) return x;
  for (const auto& [name, schema] : ops_)
    for (const OpSchema::Joins& joins : schema->epilogues()) {
      if (joins.epilogue != epilogue) continue;
      check(numbers.size() == joins.numbers.size(), "activation '{}' has {} numbers, expected {}",
            name_of(epilogue), numbers.size(), joins.numbers.size());
      Attrs attrs = joins.when;
      for (size_t i = 0; i < numbers.size(); ++i) attrs.set(joins.numbers[i], numbers[i]);
      return x.graph->emit1(name, {x}, attrs);
    }
  fail("no op is the epilogue '{}'", name_of(epilogue));
}

// A rule's own constants are no numbers of a half: 2 / sqrt(pi) in bfloat16 is off by 0.3 %.
Value Backward::widened(Value value) const {
  if (!value || !node_.schema->has_wide_rule()) return value;
  return widen(value, node_.schema->compute_dtype(node_));
}

Value Backward::dy(size_t i) const {
  return i < dy_.size() ? widened(dy_[i]) : Value{};
}

Value Backward::y(size_t i) const {
  return widened(graph_.ensure_output(&node_, i));
}

size_t OpCall::count() const {
  if (graph_.is_pattern()) throw NotAPattern("a definition asks for a pattern's number of inputs");
  return in_.size();
}

const Attrs& OpCall::attrs() const {
  if (graph_.is_pattern()) throw NotAPattern("a definition asks for an attribute of a pattern");
  return attrs_;
}

std::optional<Dims> InferContext::contents(size_t i) const {
  if (!has(i)) return std::nullopt;
  return graph_.contents(node_.in[i]);
}

std::optional<std::vector<int64_t>> InferContext::ints(size_t i) const {
  const auto known = contents(i);
  if (!known) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Dim& dim : *known) {
    if (!dim.value()) return std::nullopt;
    numbers.push_back(*dim.value());
  }
  return numbers;
}

int64_t InferContext::axis(int64_t axis, int64_t rank) const {
  require(axis >= -rank && axis < rank, "axis {} does not exist, the input has rank {}", axis,
          rank);
  return axis < 0 ? axis + rank : axis;
}

void InferContext::out(size_t i, DType dtype, std::optional<Dims> dims) {
  if (!wants(i)) return;
  Sizes numbers;
  for (const Dim& dim : dims.value_or(Dims{})) {
    numbers.push_back(dim.value().value_or(1));
    require(numbers.back() >= 0, "the shape {} of its result has a negative size", *dims);
  }
  require(is_addressable(numbers, size_of(dtype)), "the shape {} of its result exceeds any memory",
          dims.value_or(Dims{}));
  graph_.set_type(node_.output(i), Type::tensor(dtype, std::move(dims)));
}

void InferContext::out(size_t i, Type type) {
  if (type.is_tensor()) return out(i, type.dtype, std::move(type.dims));
  if (wants(i)) graph_.set_type(node_.output(i), std::move(type));
}

void InferContext::out_opaque(size_t i) {
  out(i, Type::opaque());
}

namespace {

// What an integer dtype can hold; nullopt: it is too narrow for sizes. Truth values are 0 and 1.
std::optional<std::pair<int64_t, int64_t>> range_of(DType dtype) {
  switch (dtype) {
    case DType::i64:
      return {{INT64_MIN, INT64_MAX}};
    case DType::u64:
      return {{0, INT64_MAX}};
    case DType::i32:
      return {{INT32_MIN, INT32_MAX}};
    case DType::u32:
      return {{0, UINT32_MAX}};
    case DType::boolean:
      return {{0, 1}};
    default:
      return std::nullopt;
  }
}

}  // namespace

void InferContext::out_contents(size_t i, Dims dims) {
  if (!wants(i)) return;
  const Type& type = node_.output(i).type();
  const auto range = range_of(type.dtype);
  if (!range || !type.dims || !product(*type.dims).is(static_cast<int64_t>(dims.size()))) return;
  for (const Dim& dim : dims)
    if (dim.value() && (*dim.value() < range->first || *dim.value() > range->second)) return;
  for (const Dim& dim : dims) {
    if (range->first > INT64_MIN) assume(at_least(dim, range->first), "element");
    if (range->second < INT64_MAX) assume(at_least(range->second, dim), "largest element");
  }
  graph_.set_contents(node_.output(i), std::move(dims));
}

void InferContext::refuse(const std::string& why) const {
  throw NotAccepted(format("[{}] {}; {}", node_.qualified(), why, node_.describe()));
}

Dims broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i)
    result[offset + i] = broadcast_size(longer[offset + i], shorter[i]);
  return result;
}

void InferContext::assume(Fact fact, std::string_view what) {
  fact.what = what;
  const auto known = fact.known();
  if (known == true) return;
  if (known == false) {
    const auto a = fact.a.value(), b = fact.b.value();
    refuse(fact.failure(a.value_or(0), b.value_or(0)));
  }
  // Of many operands each often says what the one before it said.
  const auto recent = node_.facts.end() -
                      std::min<std::ptrdiff_t>(16, static_cast<std::ptrdiff_t>(node_.facts.size()));
  if (std::find(recent, node_.facts.end(), fact) == node_.facts.end())
    node_.facts.push_back(std::move(fact));
}

Dim InferContext::broadcast(const Dim& a, const Dim& b, std::string_view what) {
  assume(broadcasts(a, b), what);
  return broadcast_size(a, b);
}

Dims InferContext::broadcast(const Dims& a, const Dims& b, std::string_view what) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 1; i <= common; ++i) {
    const Dim &x = a[a.size() - i], &y = b[b.size() - i];
    const bool never = x.value() && y.value() && !broadcasts(x, y).known().value_or(true);
    require(!never, "{} {} and {} do not broadcast", what, a, b);
    assume(broadcasts(x, y), what);
  }
  return ort::broadcast(a, b);
}

void InferContext::assume_equal(const Dims& a, const Dims& b, std::string_view what) {
  require(a.size() == b.size(), "{} {} and {} have different ranks", what, a, b);
  for (size_t i = 0; i < a.size(); ++i) assume(equal_sizes(a[i], b[i]), what);
}

void InferContext::assume_scalar(size_t i, std::string_view what) {
  if (has(i) && ranked(i)) assume(equal_sizes(product(dims(i)), 1), what);
}

}  // namespace ort
