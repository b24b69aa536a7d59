// Quantised tensors as ONNX has them, by their parts: y = saturate(round(x / scale) + zero_point).
#include <algorithm>

#include "csrc/ops/quantized/linear.h"

namespace ort {

using namespace quantized;

namespace {

constexpr TypeSet kNarrowIntegers = kBytes | bit(DType::i16) | bit(DType::u16) | bit(DType::i4) |
                                    bit(DType::u4) | bit(DType::i2) | bit(DType::u2);
constexpr TypeSet kFloat8 =
    bit(DType::f8e4m3fn) | bit(DType::f8e4m3fnuz) | bit(DType::f8e5m2) | bit(DType::f8e5m2fnuz);
constexpr TypeSet kQuantised =
    kNarrowIntegers | kFloat8 | bit(DType::f4e2m1) | bit(DType::f6e2m3) | bit(DType::f6e3m2);
constexpr TypeSet kScales = bit(DType::f32) | bit(DType::f16) | bit(DType::bf16);

bool is_float8(DType dtype) {
  return (bit(dtype) & kFloat8) != 0;
}

Value clamped(Value x, double low, double high) {
  return minimum(maximum(x, number(low, x)), number(high, x));
}

DType dtype_attr(const Attrs& attrs, std::string_view name, DType otherwise) {
  const int64_t given = attrs.i(name);
  check(given >= 0 && given < kDTypes, "attribute '{}' is {}, which is no dtype", name, given);
  return given == 0 ? otherwise : static_cast<DType>(given);
}

}  // namespace

Value quantized::of_blocks(Value each, int64_t axis, const Dim& block, const Dim& places) {
  const Dims d = each.dims();
  const auto at = static_cast<size_t>(axis);
  Dims apart = d, together = d;
  apart.insert(apart.begin() + axis + 1, block);
  together[at] = d[at] * block;
  const Value repeated = reshape(expand(unsqueeze(each, {axis + 1}), apart), together);
  return together[at] == places ? repeated : slice(repeated, axis, 0, places);
}

Value quantized::along(Value scale, Value x, const Attrs& attrs, std::string_view op) {
  const Dims d = x.dims(), s = scale.dims();
  const int64_t rank = static_cast<int64_t>(d.size()), block = attrs.i("block_size");
  if (s.empty()) return scale;
  int64_t axis = attrs.i("axis");
  const bool exists = axis >= -rank && axis < rank;
  // The default axis is 1, which a vector has not: one number serves all of it.
  if (s.size() == 1 && (s[0] == Dim(1) || (!exists && !s[0].value()))) return reshape(scale, {});
  check(exists, "[{}] axis {} does not exist, x has rank {}", op, axis, rank);
  axis += axis < 0 ? rank : 0;
  const auto at = static_cast<size_t>(axis);
  if (block > 0 && s.size() == d.size()) return of_blocks(scale, axis, block, d[at]);
  check(s.size() == 1,
        "[{}] scales have shape {}, x has shape {} and block_size is {}: expected one number, one "
        "axis, or x's rank and a positive block_size",
        op, s, d, block);
  check(s[0] == d[at] || !s[0].value() || !d[at].value(),
        "[{}] scales have shape {}, expected [{}] for axis {} of x", op, s, d[at], axis);
  Dims wide(d.size(), Dim(1));
  wide[at] = s[0];
  return reshape(scale, wide);
}

std::pair<double, double> quantized::range_of(DType dtype) {
  const int bits = bits_of(dtype);
  const bool is_unsigned =
      dtype == DType::u2 || dtype == DType::u4 || dtype == DType::u8 || dtype == DType::u16;
  const double half = static_cast<double>(int64_t{1} << (bits - 1));
  return is_unsigned ? std::pair{0.0, 2 * half - 1} : std::pair{-half, half - 1};
}

Value quantized::centred(Value q, Value zero_point, DType dtype) {
  const Value wide = cast(q, dtype);
  return zero_point ? wide - cast(zero_point, dtype) : wide;
}

Value quantized::of_rows(Value each) {
  return each && each.dims().size() == 1 && each.dim(0) != Dim(1) ? unsqueeze(each, {1}) : each;
}

Value quantized::of_channels(Value each, size_t rank) {
  if (each.dims().empty() || each.dim(0) == Dim(1)) return reshape(each, {});
  Dims wide(rank, Dim(1));
  wide[1] = each.dim(0);
  return reshape(each, wide);
}

Value quantized::saturated(Value quotient, Value zero_point, DType dtype) {
  const Value rounded = unary("Round", cast(quotient, DType::f32));
  const Value moved = zero_point ? rounded + cast(zero_point, DType::f32) : rounded;
  const auto [low, high] = range_of(dtype);
  return cast(clamped(moved, low, high), dtype);
}

namespace {

Value quantized_linear(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value zero_point = c.x(2) ? along(c.x(2), c.x(0), attrs, "QuantizeLinear") : Value{};
  const DType asked = dtype_attr(attrs, "output_dtype", DType::undefined);
  check(asked == DType::undefined || !zero_point || zero_point.dtype() == asked,
        "[QuantizeLinear] output_dtype is {}, y_zero_point is {}", asked,
        zero_point ? zero_point.dtype() : asked);
  const DType dtype = zero_point                  ? zero_point.dtype()
                      : asked == DType::undefined ? DType::u8
                                                  : asked;
  check((bit(dtype) & kQuantised) != 0,
        "[QuantizeLinear] output_dtype is {}, which is not of few bits", dtype);
  const Value scale = along(c.x(1), c.x(0), attrs, "QuantizeLinear");
  // As numpy has them beside each other: the wider of the two.
  const bool alike = is_floating(c.x(0).dtype()) && c.x(0).dtype() == scale.dtype();
  const DType precision = dtype_attr(attrs, "precision", alike ? scale.dtype() : DType::f32);
  const Value quotient = cast(c.x(0), precision) / cast(scale, precision);
  if ((bit(dtype) & kNarrowIntegers) != 0) return saturated(quotient, zero_point, dtype);
  const Value moved =
      zero_point && !is_float8(dtype) ? quotient + cast(zero_point, precision) : quotient;
  return c.graph().emit1("Cast", {moved},
                         {{"to", static_cast<int64_t>(dtype)}, {"saturate", attrs.i("saturate")}});
}

Value dequantized_linear(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  Value x = cast(c.x(0), DType::f32);
  if (c.has(2) && !is_float8(c.x(0).dtype()))
    x = x - cast(along(c.x(2), c.x(0), attrs, "DequantizeLinear"), DType::f32);
  const Value scale = along(c.x(1), c.x(0), attrs, "DequantizeLinear");
  return cast(x * cast(scale, DType::f32), dtype_attr(attrs, "output_dtype", c.x(1).dtype()));
}

}  // namespace

// Zero is among the numbers, so that it is met exactly. Of zeros alone the scale is 1, as in
// onnxruntime: the formula would divide by zero.
Quantized quantized::dynamically(Value x) {
  const Value none = number(0.0, x);
  const Outputs ends = x.graph->emit("ort::MinMax", std::vector{x}, {}, 2);
  const Value low = minimum(ends[0], none), range = maximum(ends[1], none) - low;
  const Value scale = where(equal(range, none), number(1.0, x), range / 255.0);
  const Value zero_point = cast(unary("Round", clamped(none - low / scale, 0, 255)), DType::u8);
  return {saturated(x / scale, zero_point, DType::u8), scale, zero_point};
}

namespace {

Value requantized(Value sums, Value factor, Value y_scale, Value y_zero) {
  return saturated(cast(sums, DType::f32) * cast(factor, DType::f32) / cast(y_scale, DType::f32),
                   y_zero, y_zero.dtype());
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point
Value linear_product(const OpCall& c) {
  const Value factor = cast(of_rows(c.x(1)), DType::f32) * cast(c.x(4), DType::f32);
  if (!is_float8(c.x(7).dtype()))
    return requantized(integer_product(c.x(0), c.x(3), c.x(2), c.x(5)), factor, c.x(6), c.x(7));
  const Value y = matmul(cast(c.x(0), DType::f32), cast(c.x(3), DType::f32));
  return cast(y * factor / cast(c.x(6), DType::f32), c.x(7).dtype());
}

// x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias
Value linear_convolution(const OpCall& c) {
  Value sums = integer_convolution(c.x(0), c.x(3), c.x(2), c.x(5), c.attrs());
  const size_t rank = sums.dims().size();
  if (c.has(8)) sums = sums + of_channels(c.x(8), rank);
  const Value factor = reshape(c.x(1), {}) * of_channels(c.x(4), rank);
  return requantized(sums, factor, c.x(6), c.x(7));
}

void register_products(OpSet& ops) {
  ops.op("QLinearMatMul")
      .in("a", kBytes | kFloat8, "A")
      .in("a_scale", kScales, "S")
      .in("a_zero_point", kBytes | kFloat8, "A")
      .in("b", kBytes | kFloat8, "B")
      .in("b_scale", kScales, "S")
      .in("b_zero_point", kBytes | kFloat8, "B")
      .in("y_scale", kScales, "S")
      .in("y_zero_point", kBytes | kFloat8, "Y")
      .out("y", kBytes | kFloat8, "Y")
      .since(10)
      .not_differentiable()
      .defined_as(linear_product);
  window_attrs(ops.op("QLinearConv")
                   .in("x", kBytes, "X")
                   .in("x_scale", bit(DType::f32), "S")
                   .in("x_zero_point", kBytes, "X")
                   .in("w", kBytes, "W")
                   .in("w_scale", bit(DType::f32), "S")
                   .in("w_zero_point", kBytes, "W")
                   .in("y_scale", bit(DType::f32), "S")
                   .in("y_zero_point", kBytes, "Y")
                   .in_optional("B", bit(DType::i32), "B")
                   .out("y", kBytes, "Y"))
      .since(10)
      .not_differentiable()
      .defined_as(linear_convolution);
}

}  // namespace

static void register_quantize(OpSet& ops) {
  ops.op("QuantizeLinear")
      .in("x", kScales | bit(DType::i32), "X")
      .in("y_scale", kScales | bit(DType::i32) | bit(DType::f8e8m0), "S")
      .in_optional("y_zero_point", kQuantised, "Y")
      .out("y", kQuantised, "Y")
      .dtype_by("output_dtype")
      .since(10)
      .attr("axis", int64_t{1})
      .attr("block_size", int64_t{0})
      .attr("output_dtype", int64_t{0})
      .attr("precision", int64_t{0})
      .attr("saturate", int64_t{1})
      .not_differentiable()
      .defined_as(quantized_linear);
  ops.op("DequantizeLinear")
      .in("x", kQuantised | bit(DType::i32), "X")
      .in("x_scale", kScales | bit(DType::f8e8m0), "S")
      .in_optional("x_zero_point", kQuantised | bit(DType::i32), "X")
      .out("y", kScales, "S")
      .dtype_by("output_dtype")
      .since(10)
      .attr("axis", int64_t{1})
      .attr("block_size", int64_t{0})
      .attr("output_dtype", int64_t{0})
      .defined_as(dequantized_linear);
  ops.op("DynamicQuantizeLinear")
      .in("x", bit(DType::f32))
      .out("y", bit(DType::u8), "Y")
      .out("y_scale", bit(DType::f32))
      .out("y_zero_point", bit(DType::u8), "Y")
      .since(11)
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        const Quantized made = dynamically(c.x(0));
        return Outputs{made.q, made.scale, made.zero_point};
      });
  register_products(ops);
}

const Family<OpSet> kQuantizeOps("ops", "quantize", register_quantize);

}  // namespace ort
