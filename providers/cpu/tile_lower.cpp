// Ops to tile instructions. What is not here arrives expanded by its definition.
#include "providers/cpu/tile_lower.h"

#include <algorithm>

namespace ort::cpu {
namespace {

struct Plain {
  TileOp op;
  int operands;
  bool swapped = false;
};

const std::map<std::string, Plain, std::less<>>& plain_ops() {
  static const std::map<std::string, Plain, std::less<>> table{
      {"Neg", {TileOp::neg, 1}},
      {"Abs", {TileOp::abs, 1}},
      {"Exp", {TileOp::exp, 1}},
      {"Log", {TileOp::log, 1}},
      {"ort::Log1p", {TileOp::log1p, 1}},
      {"ort::Expm1", {TileOp::expm1, 1}},
      {"ort::Log2", {TileOp::log2, 1}},
      {"Sqrt", {TileOp::sqrt, 1}},
      {"Reciprocal", {TileOp::reciprocal, 1}},
      {"Erf", {TileOp::erf, 1}},
      {"Tanh", {TileOp::tanh, 1}},
      {"Sigmoid", {TileOp::sigmoid, 1}},
      {"Relu", {TileOp::relu, 1}},
      {"Sin", {TileOp::sin, 1}},
      {"Cos", {TileOp::cos, 1}},
      {"Floor", {TileOp::floor, 1}},
      {"Ceil", {TileOp::ceil, 1}},
      {"Round", {TileOp::round, 1}},
      {"Sign", {TileOp::sign, 1}},
      {"IsNaN", {TileOp::is_nan, 1}},
      {"Not", {TileOp::logical_not, 1}},
      {"Add", {TileOp::add, 2}},
      {"Sub", {TileOp::sub, 2}},
      {"Mul", {TileOp::mul, 2}},
      {"Div", {TileOp::div, 2}},
      {"Equal", {TileOp::equal, 2}},
      {"Less", {TileOp::less, 2}},
      {"LessOrEqual", {TileOp::less_equal, 2}},
      {"Greater", {TileOp::less, 2, true}},
      {"GreaterOrEqual", {TileOp::less_equal, 2, true}},
      {"And", {TileOp::logical_and, 2}},
      {"Or", {TileOp::logical_or, 2}},
      {"Xor", {TileOp::logical_xor, 2}},
      {"Where", {TileOp::where, 3}},
  };
  return table;
}

bool is_special(const std::string& name) {
  static const char* const kNames[] = {"Pow",        "Clip",         "Cast",     "Max",
                                       "Min",        "Sum",          "Gelu",     "Swish",
                                       "IsInf",      "ort::Dropout", "Expand",   "ReduceSum",
                                       "ReduceMean", "ReduceMax",    "ReduceMin"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

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

size_t data_operands(const Node& node) {
  return is_reduction(node) || node.is("Expand") ? 1 : node.in.size();
}

TileBuilder::Id TileLowering::of(const Node& node, size_t i) {
  const ValueId id = node.in.at(i);
  const auto found = values.find(id);
  if (found != values.end()) return found->second;
  const auto number = scalar_of(node.input(i));
  check(number.has_value(), "[{}] operand {} is not in its tile region", node.describe(), i);
  return values[id] = builder.constant(*number);
}

TileBuilder::Id TileLowering::fold(TileOp op, const Node& node) {
  Id result = of(node, 0);
  for (size_t i = 1; i < node.in.size(); ++i) result = builder.emit(op, result, of(node, i));
  return result;
}

TileBuilder::Id TileLowering::lower_power(Id x, Id exponent, std::optional<double> number) {
  if (!number) return builder.emit(TileOp::pow, x, exponent);
  if (*number == 1.0) return x;
  if (*number == 2.0) return builder.emit(TileOp::square, x);
  if (*number == 3.0) return builder.emit(TileOp::mul, builder.emit(TileOp::square, x), x);
  if (*number == -1.0) return builder.emit(TileOp::reciprocal, x);
  if (*number == 0.5) return builder.emit(TileOp::sqrt, x);
  if (*number == -0.5) return builder.emit(TileOp::reciprocal, builder.emit(TileOp::sqrt, x));
  return builder.emit(TileOp::pow, x, exponent);
}

TileBuilder::Id TileLowering::lower_clip(const Node& node) {
  Id result = of(node, 0);
  // The bound comes first: of two zeros the second is taken, as torch keeps x's.
  if (node.has_input(1)) result = builder.emit(TileOp::max, of(node, 1), result);
  if (node.has_input(2)) result = builder.emit(TileOp::min, of(node, 2), result);
  return result;
}

// Inside a program all numbers are floats; only truth needs work.
TileBuilder::Id TileLowering::lower_cast(const Node& node) {
  const Id x = of(node, 0);
  const bool to_truth = static_cast<DType>(node.attrs.i("to")) == DType::boolean;
  if (!to_truth || node.input(0).dtype() == DType::boolean) return x;
  return builder.emit(TileOp::logical_not, builder.emit(TileOp::logical_not, x));
}

TileBuilder::Id TileLowering::lower_reduction(const Node& node) {
  const Id x = of(node, 0);
  const int64_t rank = node.input(0).rank();
  const auto axes = *reduced_axes(node, rank);
  const bool leading = axes.front() == 0;
  if (leading) return builder.emit(TileOp::column_sum, x);
  if (node.op == "ReduceMax") return builder.emit(TileOp::row_max, x);
  if (node.op == "ReduceMin") return builder.emit(TileOp::row_min, x);
  const float scale = node.op == "ReduceMean" ? 1.0f / static_cast<float>(builder.cols()) : 1.0f;
  return builder.emit(TileOp::row_sum, x, -1, -1, scale);
}

TileBuilder::Id TileLowering::lower_plain(const Node& node) {
  const Plain& plain = plain_ops().find(node.qualified())->second;
  if (plain.operands == 1) return builder.emit(plain.op, of(node, 0));
  if (plain.operands == 3) return builder.emit(plain.op, of(node, 0), of(node, 1), of(node, 2));
  const Id a = of(node, plain.swapped ? 1 : 0), b = of(node, plain.swapped ? 0 : 1);
  return builder.emit(plain.op, a, b);
}

void TileLowering::lower(const Node& node) {
  const std::string name = node.qualified();
  Id result = -1;
  if (plain_ops().count(name) != 0) {
    result = lower_plain(node);
  } else if (is_reduction(node)) {
    result = lower_reduction(node);
  } else if (name == "Pow") {
    result = lower_power(of(node, 0), of(node, 1), scalar_of(node.input(1)));
  } else if (name == "Clip") {
    result = lower_clip(node);
  } else if (name == "Cast") {
    result = lower_cast(node);
  } else if (name == "Max" || name == "Min") {
    result = fold(name == "Max" ? TileOp::max : TileOp::min, node);
  } else if (name == "Sum") {
    result = fold(TileOp::add, node);
  } else if (name == "Gelu") {
    const bool tanh = node.attrs.s("approximate", "none") == "tanh";
    result = builder.emit(tanh ? TileOp::gelu_tanh : TileOp::gelu, of(node, 0));
  } else if (name == "Swish") {
    result = builder.emit(TileOp::silu, of(node, 0));
  } else if (name == "IsInf") {
    result = builder.emit(TileOp::is_inf, of(node, 0));
  } else if (name == "ort::Dropout") {
    result = builder.emit(TileOp::dropout, of(node, 0), of(node, 1), -1,
                          static_cast<float>(node.attrs.f("ratio")),
                          static_cast<uint32_t>(node.attrs.i("counter")));
  } else if (name == "Expand") {
    result = of(node, 0);
  }
  check(result >= 0, "[{}] has no tile instructions", node.describe());
  values[node.out[0]] = result;
}

}  // namespace ort::cpu
