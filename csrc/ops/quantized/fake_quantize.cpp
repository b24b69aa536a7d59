// Quantised and dequantised at once, as training of quantised networks has it.
#include <algorithm>

#include "csrc/ops/quantized/linear.h"

namespace ort {
namespace {

// The integer of x before it saturates, in the dtype of x or at least float32. A zero point that is
// no integer is added before rounding.
Value integer_of(Value x, Value scale, Value zero_point, const Attrs& attrs) {
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Value wide = cast(x, dtype), zero = cast(zero_point, dtype);
  const Value scaled = attrs.i("reciprocal") != 0
                           ? wide * cast(1.0 / cast(scale, DType::f32), dtype)
                           : wide / cast(scale, dtype);
  return is_floating(zero_point.dtype()) ? unary("Round", scaled + zero)
                                         : unary("Round", scaled) + zero;
}

Value inside(Value integer, const Attrs& attrs) {
  return logical_and(integer >= attrs.f("quant_min"), integer <= attrs.f("quant_max"));
}

Value fake_quantized(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value q = integer_of(c.x(0), c.x(1), c.x(2), attrs);
  const Value low = number(attrs.f("quant_min"), q), high = number(attrs.f("quant_max"), q);
  const Value saturated =
      where(q >= attrs.f("quant_min"), minimum(q, high), low);  // NaN has the lowest, as in torch
  const Value centred = saturated - cast(c.x(2), q.dtype());
  return cast(centred * cast(c.x(1), q.dtype()), c.x(0).dtype());
}

// The pair of ONNX's nodes, where a dtype of bytes has the bounds and scales are those of one axis.
Value as_pair(const OpCall& c) {
  const Value x = c.x(0), scale = c.x(1), zero = c.x(2);
  const auto has_bounds = [&](DType dtype) {
    return quantized::range_of(dtype) ==
           std::pair{c.attrs().f("quant_min"), c.attrs().f("quant_max")};
  };
  const bool bytes = has_bounds(DType::u8) || has_bounds(DType::i8);
  if (!bytes || x.dtype() != DType::f32 || !is_integer(zero.dtype())) return {};
  const Dims d = scale.dims();
  const auto wide = std::find_if(d.begin(), d.end(), [](const Dim& size) { return !size.is(1); });
  const bool one_axis =
      wide == d.end() ||
      (d.size() == x.dims().size() &&
       std::all_of(wide + 1, d.end(), [](const Dim& size) { return size.is(1); }));
  if (!one_axis || zero.dims() != d) return {};
  std::vector<int64_t> others;
  for (size_t i = 0; i < d.size(); ++i)
    if (d[i].is(1)) others.push_back(static_cast<int64_t>(i));
  const Attrs axis{{"axis", static_cast<int64_t>(wide == d.end() ? 0 : wide - d.begin())}};
  const auto flat = [&](Value each) { return others.empty() ? each : squeeze(each, others); };
  const Value s = cast(flat(scale), DType::f32);
  const Value z = cast(flat(zero), has_bounds(DType::u8) ? DType::u8 : DType::i8);
  const Value q = c.graph().emit1("QuantizeLinear", {x, s, z}, axis);
  return c.graph().emit1("DequantizeLinear", {q, s, z}, axis);
}

bool is_pair(const Node& q, const Node& dq) {
  if (!q.is("QuantizeLinear") || !dq.is("DequantizeLinear")) return false;
  const Value x = q.input(0), scale = q.input(1);
  const int64_t to = dq.attrs.i("output_dtype");
  const bool wide = x.dtype() == DType::f32 && scale.dtype() == DType::f32 &&
                    q.attrs.i("precision") == 0 &&
                    (to == 0 || to == static_cast<int64_t>(DType::f32));
  const auto alike = [&](const char* attr) { return q.attrs.i(attr) == dq.attrs.i(attr); };
  const bool same =
      scale == dq.input(1) && q.input(2) == dq.input(2) && alike("axis") && alike("block_size");
  return wide && same && is_integer(q.output().dtype()) && x.type().dims && scale.type().dims;
}

}  // namespace

Value quantized::join_rounding(Node& dq) {
  const Node* q = dq.has_input(0) ? dq.input(0).producer() : nullptr;
  if (!q || !is_pair(*q, dq)) return {};
  Graph& graph = *dq.graph;
  Insertion here(graph, &dq, "join_rounding");
  const Value x = q->input(0);
  const auto beside = [&](Value each) { return along(each, x, q->attrs, "QuantizeLinear"); };
  const Value zero = q->has_input(2) ? q->input(2) : number(0.0, q->output());
  const auto [low, high] = range_of(q->output().dtype());
  const Value y =
      graph.emit1("ort::FakeQuantize", {x, beside(q->input(1)), beside(zero)},
                  {{"quant_min", low}, {"quant_max", high}, {"reciprocal", int64_t{0}}});
  graph.replace(dq.output(), y, "join_rounding");
  graph.erase(&dq);
  return y;
}

void quantized::join_roundings(Graph& graph) {
  for (Node* node : graph.order()) {
    for (const auto& [name, body] : node->bodies) join_roundings(*body);
    join_rounding(*node);
  }
}

static void register_fake_quantize(OpSet& ops) {
  // y = (clip(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) scale, where scale
  // and zero_point broadcast to x. The gradient passes where nothing is clipped, as though nothing
  // was rounded (Bengio, Léonard, Courville 2013). Attribute reciprocal: x (1 / scale) in the place
  // of x / scale, as torch has it.
  ops.op("ort::FakeQuantize")
      .in("x", kFloating)
      .in("scale", kFloating, "S")
      .in("zero_point", kNumeric, "Z")
      .out("y")
      .attr_required("quant_min")
      .attr_required("quant_max")
      .attr("reciprocal", int64_t{1})
      .differentiable_inputs({0})
      .shape([](InferContext& c) {
        expect_stretches(c, 1, c.dims(0));
        expect_stretches(c, 2, c.dims(0));
        same_dims(c, 0, 0);
      })
      .standard_as(as_pair)
      .defined_as(fake_quantized)
      .gradient([](const Backward& b) -> Outputs {
        const Value q = integer_of(b.x(0), b.x(1), b.x(2), b.attrs());
        return {where(inside(q, b.attrs()), b.dy(), zeros_like(b.dy()))};
      });
}

const Family<OpSet> kFakeQuantizeOps("ops", "fake_quantize", register_fake_quantize);

}  // namespace ort
