// Ops to tile instructions. What is not here arrives expanded by its definition.
#include "providers/tile/lower.h"

#include <algorithm>

namespace ort::tile {
namespace {

struct Plain {
  Op op;
  int operands;
  bool swapped = false;
};

const std::map<std::string, Plain, std::less<>>& plain_ops() {
  static const std::map<std::string, Plain, std::less<>> table{
      {"Neg", {Op::neg, 1}},
      {"Abs", {Op::abs, 1}},
      {"Exp", {Op::exp, 1}},
      {"Log", {Op::log, 1}},
      {"ort::Log1p", {Op::log1p, 1}},
      {"ort::Expm1", {Op::expm1, 1}},
      {"ort::Log2", {Op::log2, 1}},
      {"Sqrt", {Op::sqrt, 1}},
      {"Reciprocal", {Op::reciprocal, 1}},
      {"Erf", {Op::erf, 1}},
      {"Tanh", {Op::tanh, 1}},
      {"Sigmoid", {Op::sigmoid, 1}},
      {"Relu", {Op::relu, 1}},
      {"Sin", {Op::sin, 1}},
      {"Cos", {Op::cos, 1}},
      {"Floor", {Op::floor, 1}},
      {"Ceil", {Op::ceil, 1}},
      {"Round", {Op::round, 1}},
      {"Sign", {Op::sign, 1}},
      {"IsNaN", {Op::is_nan, 1}},
      {"Not", {Op::logical_not, 1}},
      {"Tan", {Op::tan, 1}},
      {"Asin", {Op::asin, 1}},
      {"Acos", {Op::acos, 1}},
      {"Atan", {Op::atan, 1}},
      {"Sinh", {Op::sinh, 1}},
      {"Cosh", {Op::cosh, 1}},
      {"Asinh", {Op::asinh, 1}},
      {"Acosh", {Op::acosh, 1}},
      {"Atanh", {Op::atanh, 1}},
      {"BitwiseNot", {Op::bit_not, 1}},
      {"Add", {Op::add, 2}},
      {"Sub", {Op::sub, 2}},
      {"Mul", {Op::mul, 2}},
      {"Div", {Op::div, 2}},
      {"Equal", {Op::equal, 2}},
      {"Less", {Op::less, 2}},
      {"LessOrEqual", {Op::less_equal, 2}},
      {"Greater", {Op::less, 2, true}},
      {"GreaterOrEqual", {Op::less_equal, 2, true}},
      {"And", {Op::logical_and, 2}},
      {"Or", {Op::logical_or, 2}},
      {"Xor", {Op::logical_xor, 2}},
      {"BitwiseAnd", {Op::bit_and, 2}},
      {"BitwiseOr", {Op::bit_or, 2}},
      {"BitwiseXor", {Op::bit_xor, 2}},
      {"Where", {Op::where, 3}},
  };
  return table;
}

bool is_special(const std::string& name) {
  static const char* const kNames[] = {"Pow",
                                       "Clip",
                                       "Cast",
                                       "Max",
                                       "Min",
                                       "Sum",
                                       "Mod",
                                       "Gelu",
                                       "Swish",
                                       "IsInf",
                                       "ort::Dropout",
                                       "Expand",
                                       "BitShift",
                                       "ReduceSum",
                                       "ReduceMean",
                                       "ReduceMax",
                                       "ReduceMin",
                                       "ort::GeluDerivative",
                                       "ort::SwishDerivative"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Whether the least change of an operand may be a large one of the result.
bool jumps(Op op) {
  switch (op) {
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::mod:
    case Op::fmod:
    case Op::is_nan:
    case Op::is_inf:
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_xor:
      return true;
    default:
      return false;
  }
}
bool jumps(const Node& node, size_t operand) {
  if (node.is("Pow")) return operand == 1;  // of a negative number, from integer to integer
  const auto plain = plain_ops().find(node.qualified());
  if (plain != plain_ops().end()) return jumps(plain->second.op);
  return node.is("Mod") || node.is("IsInf") ||
         (node.is("Cast") && node.output().dtype() == DType::boolean);
}

}  // namespace

DType computed_in(DType dtype) {
  return is_half(dtype) ? DType::f32 : dtype;
}

bool is_reduction(const Node& node) {
  return node.domain().empty() && node.op.starts_with("Reduce");
}

std::optional<std::vector<int64_t>> reduced_axes(const Node& node, int64_t rank) {
  std::vector<int64_t> axes;
  if (node.has_input(1)) {
    const auto& known = node.graph->contents(node.in[1]);
    const Tensor* constant = constant_of(node.input(1));
    if (!known && !constant) return std::nullopt;
    const int64_t count = known ? static_cast<int64_t>(known->size()) : constant->count();
    for (int64_t i = 0; i < count; ++i) {
      const auto axis = known ? (*known)[static_cast<size_t>(i)].value()
                              : std::optional(element_as_int(*constant, i));
      if (!axis) return std::nullopt;
      axes.push_back(*axis < 0 ? *axis + rank : *axis);
    }
  }
  if (axes.empty() && node.attrs.i("noop_with_empty_axes", 0) == 0)
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  std::sort(axes.begin(), axes.end());
  return axes;
}

bool lowers(const Node& node) {
  const std::string name = node.qualified();
  return plain_ops().count(name) != 0 || is_special(name);
}

bool of_bools(const Node& node) {
  static const char* const kNames[] = {
      "And", "Or",  "Xor",   "Not",   "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
      "Max", "Min", "Equal", "Where", "Cast", "Expand"};
  const auto is_bool = [](Value value) { return value.type().dtype == DType::boolean; };
  for (size_t i = 0; i < data_operands(node); ++i)
    if (node.has_input(i) && !is_bool(node.input(i))) return false;
  return is_bool(node.output()) && node.domain().empty() &&
         std::find(std::begin(kNames), std::end(kNames), node.op) != std::end(kNames);
}

bool only_stores(const Node& node) {
  return node.is("Cast") && is_floating(node.input(0).dtype()) && is_integer(node.output().dtype());
}

size_t data_operands(const Node& node) {
  return is_reduction(node) || node.is("Expand") ? 1 : node.in.size();
}

Role role_of(const Node& node, size_t operand) {
  return node.is("ort::Dropout") && operand == 1 ? Role::key : Role::data;
}

DType element_of(const Node& node) {
  const DType out = computed_in(node.output().type().dtype);
  const DType in = computed_in(node.input(0).type().dtype);
  if (node.is("Cast") && out != DType::boolean) return out;
  // An integer that is not zero is none as a float either.
  if (node.is("Cast")) return is_floating(in) ? in : DType::undefined;
  for (size_t i = 0; i < data_operands(node); ++i) {
    if (!node.has_input(i) || role_of(node, i) == Role::key) continue;
    const DType dtype = node.input(i).type().dtype;
    if (dtype != DType::boolean) return computed_in(dtype);
  }
  return DType::undefined;
}

std::optional<double> immediate(const Node& node, size_t operand) {
  const Value value = node.input(operand);
  return is_integer(value.type().dtype) ? std::nullopt : scalar_of(value);
}

Builder::Id Lowering::of(const Node& node, size_t i) {
  const ValueId id = node.in.at(i);
  const auto found = values.find(id);
  if (found != values.end()) return must_round(node, i) ? rounded(id) : found->second;
  const auto number = immediate(node, i);
  if (!number) fail("[{}] operand {} is not in its tile region", node.describe(), i);
  return values[id] = builder.constant(*number);
}

// All that read a half between ops see what memory would hold of it: two readers, of which one may
// be in another region or in the backward, must not differ. Between the parts of one op it stays
// float32, but where a rounding is asked for by name, and where one more or less would show.
bool Lowering::must_round(const Node& node, size_t i) const {
  const Value value = node.input(i);
  if (value.type().dtype == computed_in(value.type().dtype) || !made_.count(value.id)) return false;
  const Node& producer = *value.producer();
  const bool parts = producer.part_of != 0 && producer.part_of == node.part_of;
  return !parts || jumps(node, i) || node.is("Cast") || producer.is("Cast");
}

Builder::Id Lowering::rounded(ValueId id) {
  const auto [found, missing] = rounded_.try_emplace(id, -1);
  if (missing) {
    const bool bfloat = made_.at(id) == DType::bf16;
    found->second = builder.emit(bfloat ? Op::to_bf16 : Op::to_f16, values.at(id));
  }
  return found->second;
}

Builder::Id Lowering::fold(Op op, const Node& node) {
  Id result = of(node, 0);
  for (size_t i = 1; i < node.in.size(); ++i) result = builder.emit(op, result, of(node, i));
  return result;
}

Builder::Id Lowering::lower_power(const Node& node) {
  const Id x = of(node, 0);
  const auto number = immediate(node, 1);
  if (number == 1.0) return x;
  if (number == 2.0) return builder.emit(Op::square, x);
  if (number == 3.0) return builder.emit(Op::mul, builder.emit(Op::square, x), x);
  if (number == -1.0) return builder.emit(Op::reciprocal, x);
  // As torch, whose roots of float16 are powers: of -inf and -0 they are others.
  const bool roots = node.output().dtype() != DType::f16;
  if (roots && number == 0.5) return builder.emit(Op::sqrt, x);
  if (roots && number == -0.5) return builder.emit(Op::reciprocal, builder.emit(Op::sqrt, x));
  return builder.emit(Op::pow, x, of(node, 1));
}

Builder::Id Lowering::lower_clip(const Node& node) {
  Id result = of(node, 0);
  // The bound comes first: of two zeros the second is taken, as torch keeps x's.
  if (node.has_input(1)) result = builder.emit(Op::max, of(node, 1), result);
  if (node.has_input(2)) result = builder.emit(Op::min, of(node, 2), result);
  return result;
}

// Inside a program all numbers are of one type; only truth needs work.
Builder::Id Lowering::lower_cast(const Node& node) {
  const Id x = of(node, 0);
  const bool to_truth = static_cast<DType>(node.attrs.i("to")) == DType::boolean;
  if (!to_truth || node.input(0).dtype() == DType::boolean) return x;
  return builder.emit(Op::logical_or, x, x);
}

Builder::Id Lowering::lower_reduction(const Node& node) {
  const Id x = of(node, 0);
  const int64_t rank = node.input(0).rank();
  const auto axes = *reduced_axes(node, rank);
  const bool leading = axes.front() == 0;
  if (leading) return builder.emit(Op::column_sum, x);
  if (node.op == "ReduceMax") return builder.emit(Op::row_max, x);
  if (node.op == "ReduceMin") return builder.emit(Op::row_min, x);
  const Op sum = sums_groups_ ? Op::column_sum : Op::row_sum;
  return builder.emit(sum, x, -1, -1, {.over_cols = node.op == "ReduceMean"});
}

Builder::Id Lowering::lower_plain(const Node& node) {
  const Plain& plain = plain_ops().find(node.qualified())->second;
  if (plain.operands == 1) return builder.emit(plain.op, of(node, 0));
  if (plain.operands == 3) return builder.emit(plain.op, of(node, 0), of(node, 1), of(node, 2));
  const Id a = of(node, plain.swapped ? 1 : 0), b = of(node, plain.swapped ? 0 : 1);
  return builder.emit(plain.op, a, b);
}

Builder::Id Lowering::lower_special(const Node& node) {
  const std::string name = node.qualified();
  if (name == "Pow") return lower_power(node);
  if (name == "Clip") return lower_clip(node);
  if (name == "Cast") return lower_cast(node);
  if (name == "Max" || name == "Min") return fold(name == "Max" ? Op::max : Op::min, node);
  if (name == "Sum") return fold(Op::add, node);
  if (name == "Mod") return fold(node.attrs.i("fmod", 0) != 0 ? Op::fmod : Op::mod, node);
  if (name == "BitShift") {
    const bool left = node.attrs.s("direction") == "LEFT";
    return builder.emit(left ? Op::shift_left : Op::shift_right, of(node, 0), of(node, 1));
  }
  const bool tanh = node.attrs.s("approximate", "none") == "tanh";
  if (name == "Gelu") return builder.emit(tanh ? Op::gelu_tanh : Op::gelu, of(node, 0));
  if (name == "ort::GeluDerivative")
    return builder.emit(tanh ? Op::gelu_tanh_derivative : Op::gelu_derivative, of(node, 0));
  if (name == "Swish") return builder.emit(Op::silu, of(node, 0));
  if (name == "ort::SwishDerivative") return builder.emit(Op::silu_derivative, of(node, 0));
  if (name == "IsInf") return builder.emit(Op::is_inf, of(node, 0));
  if (name == "ort::Dropout")
    return builder.emit(Op::dropout, of(node, 0), of(node, 1), -1, {node.attrs.f("ratio")},
                        static_cast<uint32_t>(node.attrs.i("counter")));
  if (name != "Expand") fail("[{}] has no tile instructions", node.describe());
  return of(node, 0);
}

void Lowering::lower(const Node& node) {
  const bool plain = plain_ops().count(node.qualified()) != 0;
  values[node.out[0]] = plain                ? lower_plain(node)
                        : is_reduction(node) ? lower_reduction(node)
                                             : lower_special(node);
  made_[node.out[0]] = node.output().dtype();
}

}  // namespace ort::tile
