// The vocabulary's emissions; nothing here knows what an op means.
#include "csrc/graph/expr.h"

#include <algorithm>
#include <numeric>

namespace ort {
namespace {

// Where a value's users go; an op asks here for operands that it may not have.
Graph& graph_of(Value x) {
  check(x.graph != nullptr, "an operand that is needed here is absent");
  return *x.graph;
}

Value binary(std::string_view op, Value a, Value b) {
  return graph_of(a).emit1(op, {a, b});
}

}  // namespace

Value number(double value, Value like) {
  return graph_of(like).scalar(value, graph_of(like).is_pattern() ? DType::f64 : like.dtype());
}

Value operator+(Value a, Value b) {
  return binary("Add", a, b);
}
Value operator-(Value a, Value b) {
  return binary("Sub", a, b);
}
Value operator*(Value a, Value b) {
  return binary("Mul", a, b);
}
Value operator/(Value a, Value b) {
  return binary("Div", a, b);
}
Value operator-(Value a) {
  return unary("Neg", a);
}
Value operator+(Value a, double b) {
  return a + number(b, a);
}
Value operator+(double a, Value b) {
  return number(a, b) + b;
}
Value operator-(Value a, double b) {
  return a - number(b, a);
}
Value operator-(double a, Value b) {
  return number(a, b) - b;
}
Value operator*(Value a, double b) {
  return a * number(b, a);
}
Value operator*(double a, Value b) {
  return number(a, b) * b;
}
Value operator/(Value a, double b) {
  return a / number(b, a);
}
Value operator/(double a, Value b) {
  return number(a, b) / b;
}
Value operator>(Value a, double b) {
  return a > number(b, a);
}
Value operator<(Value a, double b) {
  return a < number(b, a);
}
Value operator>=(Value a, double b) {
  return binary("GreaterOrEqual", a, number(b, a));
}
Value operator<=(Value a, double b) {
  return binary("LessOrEqual", a, number(b, a));
}
Value operator>(Value a, Value b) {
  return binary("Greater", a, b);
}
Value operator<(Value a, Value b) {
  return binary("Less", a, b);
}
Value logical_and(Value a, Value b) {
  return binary("And", a, b);
}
Value logical_not(Value a) {
  return unary("Not", a);
}

Value unary(std::string_view op, Value x) {
  return graph_of(x).emit1(op, {x});
}
Value exp(Value x) {
  return unary("Exp", x);
}
Value log(Value x) {
  return unary("Log", x);
}
Value sqrt(Value x) {
  return unary("Sqrt", x);
}
Value erf(Value x) {
  return unary("Erf", x);
}
Value tanh(Value x) {
  return unary("Tanh", x);
}
Value sigmoid(Value x) {
  return unary("Sigmoid", x);
}
Value sin(Value x) {
  return unary("Sin", x);
}
Value cos(Value x) {
  return unary("Cos", x);
}
Value abs(Value x) {
  return unary("Abs", x);
}
Value sign(Value x) {
  return unary("Sign", x);
}
Value reciprocal(Value x) {
  return unary("Reciprocal", x);
}
Value relu(Value x) {
  return unary("Relu", x);
}
Value pow(Value x, Value y) {
  return binary("Pow", x, y);
}
Value pow(Value x, double y) {
  return pow(x, number(y, x));
}
Value maximum(Value a, Value b) {
  return binary("Max", a, b);
}
Value minimum(Value a, Value b) {
  return binary("Min", a, b);
}
Value equal(Value a, Value b) {
  return binary("Equal", a, b);
}
Value where(Value condition, Value a, Value b) {
  return graph_of(condition).emit1("Where", {condition, a, b});
}

Value widen(Value x, DType wide) {
  const bool narrow = x && x.type().kind == Type::Kind::tensor && is_floating(x.dtype()) &&
                      is_floating(wide) && size_of(x.dtype()) < size_of(wide);
  return narrow ? cast(x, wide) : x;
}

Value cast(Value x, DType dtype) {
  if (!graph_of(x).is_pattern() && x.dtype() == dtype) return x;
  return graph_of(x).emit1("Cast", {x}, {{"to", static_cast<int64_t>(dtype)}});
}

Value full(Graph& graph, const Dims& dims, double value, DType dtype) {
  return expand(graph.scalar(value, dtype), dims);
}
Value zeros_like(Value x) {
  return full(*x.graph, x.dims(), 0.0, x.dtype());
}

Value matmul(Value a, Value b) {
  return binary("MatMul", a, b);
}

Value transpose(Value x, std::vector<int64_t> perm) {
  return graph_of(x).emit1("Transpose", {x}, {{"perm", std::move(perm)}});
}

Value swap_last(Value x) {
  std::vector<int64_t> perm(static_cast<size_t>(x.rank()));
  std::iota(perm.begin(), perm.end(), 0);
  check(perm.size() >= 2, "swap_last: value %{} has rank {}, expected at least 2", x.id,
        perm.size());
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, std::move(perm));
}

Value reshape(Value x, Dims dims) {
  if (x.type().dims && *x.type().dims == dims) return x;
  // Only then: a size of zero would mean "copy the input's".
  const bool empty =
      std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is(0); });
  const Attrs attrs = empty ? Attrs{{"allowzero", int64_t{1}}} : Attrs{};
  return graph_of(x).emit1("Reshape", {x, graph_of(x).sizes(std::move(dims))}, attrs);
}

Value expand(Value x, Dims dims) {
  if (x.type().dims && *x.type().dims == dims) return x;
  return graph_of(x).emit1("Expand", {x, graph_of(x).sizes(std::move(dims))});
}

Value squeeze(Value x, std::vector<int64_t> axes) {
  return axes.empty() ? x : graph_of(x).emit1("Squeeze", {x, graph_of(x).ints(axes)});
}

Value unsqueeze(Value x, std::vector<int64_t> axes) {
  return axes.empty() ? x : graph_of(x).emit1("Unsqueeze", {x, graph_of(x).ints(axes)});
}

Value slice(Value x, int64_t axis, Dim start, Dim end, int64_t step) {
  Graph& g = *x.graph;
  return g.emit1(
      "Slice",
      {x, g.sizes({std::move(start)}), g.sizes({std::move(end)}), g.ints({axis}), g.ints({step})},
      {{"inside", int64_t{1}}});
}

Value concat(std::vector<Value> values, int64_t axis) {
  return graph_of(values.at(0)).emit("Concat", values, {{"axis", axis}}, 1)[0];
}

Value pad_axis(Value x, int64_t axis, Dim before, Dim after) {
  Graph& g = *x.graph;
  return g.emit1(
      "Pad", {x, g.sizes({std::move(before), std::move(after)}), number(0.0, x), g.ints({axis})});
}

Value reduce(std::string_view op, Value x, std::vector<int64_t> axes, bool keepdims) {
  Graph& g = *x.graph;
  if (axes.empty()) return x;
  return g.emit1(op, {x, g.ints(axes)}, {{"keepdims", static_cast<int64_t>(keepdims)}});
}

Value reduce_sum(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce("ReduceSum", x, std::move(axes), keepdims);
}
Value reduce_mean(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce("ReduceMean", x, std::move(axes), keepdims);
}
Value reduce_max(Value x, std::vector<int64_t> axes, bool keepdims) {
  return reduce("ReduceMax", x, std::move(axes), keepdims);
}
Value softmax(Value x, int64_t axis) {
  return graph_of(x).emit1("Softmax", {x}, {{"axis", axis}});
}

Value sum_to(Value x, const Dims& dims) {
  const Dims& from = x.dims();
  if (from == dims) return x;
  check(from.size() >= dims.size(), "sum_to: value %{} has shape {}, which does not sum to {}",
        x.id, from, dims);
  const size_t extra = from.size() - dims.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i)
    if (i < extra || (dims[i - extra].is(1) && !from[i].is(1)))
      axes.push_back(static_cast<int64_t>(i));
  const bool inner = !axes.empty() && axes.back() >= static_cast<int64_t>(extra);
  // Sizes that are not known to be equal must be: a size of 1 is one when the graph is made.
  return reshape(reduce_sum(x, axes, inner && extra == 0), dims);
}

Value stop_gradient(Value x) {
  return unary("ort::StopGradient", x);
}

std::vector<int64_t> all_axes(Value x) {
  std::vector<int64_t> axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace ort
