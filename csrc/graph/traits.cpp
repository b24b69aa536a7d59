// What an entry says of an op's cost, effect, epilogue and dtype of computation: names and
// readings.
#include <array>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

// By the enum's value.
constexpr std::array<std::string_view, 6> kEffects{"none",        "random",     "check",
                                                   "state_write", "collective", "python"};
constexpr std::array<std::string_view, 10> kEpilogues{
    "none", "relu",      "tanh",       "sigmoid",    "silu",
    "gelu", "gelu_tanh", "hard_swish", "leaky_relu", "clip"};

template <class E, size_t N>
E named(const std::array<std::string_view, N>& names, std::string_view name, const char* what) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<E>(i);
  fail("unknown {} '{}'", what, name);
}

// Of an op that says nothing of its own.
constexpr double kCheap = 1, kElementwise = 4, kGeneral = 8;

}  // namespace

Effect effect_named(std::string_view name) {
  return named<Effect>(kEffects, name, "effect");
}
std::string_view name_of(Epilogue epilogue) {
  return kEpilogues.at(static_cast<size_t>(epilogue));
}
Epilogue epilogue_named(std::string_view name) {
  return named<Epilogue>(kEpilogues, name, "activation");
}
Epilogue epilogue_of(const Attrs& attrs) {
  return epilogue_named(attrs.s("activation", "none"));
}
std::vector<double> epilogue_numbers_of(const Attrs& attrs) {
  const Attr* numbers = attrs.find("activation_numbers");
  if (!numbers) return {};
  if (const auto* reals = std::get_if<std::vector<double>>(numbers)) return *reals;
  const auto* integers = std::get_if<std::vector<int64_t>>(numbers);
  if (!integers) fail("activation_numbers is {}, expected numbers", attr_text(*numbers));
  return {integers->begin(), integers->end()};
}

double Sized::elements(Value value) const {
  if (!value) return 0;
  double count = 1;
  if (value.type().dims)
    for (const Dim& dim : *value.type().dims) count *= size_(dim);
  return count;
}

double OpSchema::operations(const Sized& node) const {
  if (is_free()) return 0;
  if (cost_) return cost_(node);
  return node.y() * (is_cheap() ? kCheap : is_elementwise() ? kElementwise : kGeneral);
}

DType OpSchema::compute_dtype(const Node& node) const {
  // Of an element-wise op that is several steps these round once, at its end.
  const bool steps = is_elementwise() && definition_ && !in_operands_;
  DType widest = computes_in_ == DType::undefined && steps ? DType::f32 : computes_in_;
  if (!computes_in_attr_.empty()) {
    const int64_t said = node.attrs.i(computes_in_attr_);
    check(known_dtype(said), "[{}] attribute '{}' is {}, which is no dtype; {}", qualified(),
          computes_in_attr_, said, node.describe());
    widest = static_cast<DType>(said);
  }
  const auto bytes = [](DType dtype) { return dtype == DType::undefined ? 0 : size_of(dtype); };
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i) || node.input(i).type().kind != Type::Kind::tensor) continue;
    const DType dtype = node.input(i).type().dtype;
    if (is_floating(dtype) && bytes(dtype) > bytes(widest)) widest = dtype;
  }
  return widest;
}

}  // namespace ort
