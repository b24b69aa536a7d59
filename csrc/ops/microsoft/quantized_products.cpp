// Products and layers of quantised tensors, as onnxruntime's quantizers write them.
#include "csrc/ops/microsoft/attention.h"
#include "csrc/ops/quantized/linear.h"

namespace ort::microsoft {
namespace {

using namespace quantized;

constexpr TypeSet kFloat = bit(DType::f32);
constexpr TypeSet kScales = bit(DType::f32) | bit(DType::f16);

// --- products ------------------------------------------------------------------------------------

// One scale, or a column's each, beside a product.
Value factor_of(Value a_scale, Value b_scale) {
  return cast(a_scale, DType::f32) * cast(b_scale, DType::f32);
}

Value integer_to_float(const OpCall& c) {
  Value y =
      cast(integer_product(c.x(0), c.x(1), c.x(4), c.x(5)), DType::f32) * factor_of(c.x(2), c.x(3));
  if (c.has(6)) y = y + cast(c.x(6), DType::f32);
  return cast(y, c.x(2).dtype());
}

Value dynamic_product(const OpCall& c) {
  const Quantized a = dynamically(c.x(0));
  const Value y = cast(integer_product(a.q, c.x(1), a.zero_point, c.x(3)), DType::f32) *
                  factor_of(a.scale, c.x(2));
  return c.has(4) ? y + c.x(4) : y;
}

// alpha a_scale b_scale (A B + C), quantised where there is a scale for that.
Value quantized_gemm(const OpCall& c) {
  const auto as_asked = [&](size_t i, std::string_view name) {
    return c.attrs().i(name) != 0 ? swap_last(c.x(i)) : c.x(i);
  };
  Value sums = integer_product(as_asked(0, "transA"), as_asked(3, "transB"), c.x(2), c.x(5));
  if (c.has(6)) sums = sums + c.x(6);
  const Value y = cast(sums, DType::f32) * (factor_of(c.x(1), c.x(4)) * c.attrs().f("alpha"));
  if (!c.has(7)) return y;
  return saturated(y / reshape(c.x(7), {}), c.x(8), c.has(8) ? c.x(8).dtype() : c.x(0).dtype());
}

Outputs quantized_attention(const OpCall& c) {
  const Value sums = integer_product(c.x(0), c.x(1), c.x(6), c.x(7));
  const Value projected =
      cast(sums, DType::f32) * factor_of(c.x(3), c.x(4)) + cast(c.x(2), DType::f32);
  return self_attention(c, {cast(projected, c.x(2).dtype()), c.x(5), c.x(8), {}});
}

void register_float_products(OpSet& ops) {
  ops.op("com.microsoft::MatMulIntegerToFloat")
      .in("A", kBytes, "A")
      .in("B", kBytes, "B")
      .in("a_scale", kScales, "S")
      .in("b_scale", kScales, "S")
      .in_optional("a_zero_point", kBytes, "A")
      .in_optional("b_zero_point", kBytes, "B")
      .in_optional("bias", kScales, "S")
      .out("Y", kScales, "S")
      .not_differentiable()
      .defined_as(integer_to_float);
  ops.op("com.microsoft::DynamicQuantizeMatMul")
      .in("A", kFloat, "F")
      .in("B", kBytes, "B")
      .in("b_scale", kFloat, "F")
      .in_optional("b_zero_point", kBytes, "B")
      .in_optional("bias", kFloat, "F")
      .out("Y", kFloat, "F")
      .not_differentiable()
      .defined_as(dynamic_product);
  ops.op("com.microsoft::MatMulInteger16")
      .in("A", bit(DType::i16) | bit(DType::u16), "A")
      .in("B", bit(DType::i16) | bit(DType::u16), "B")
      .out("Y", bit(DType::i32) | bit(DType::u32), "Y")
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        const bool positive = c.x(0).dtype() == DType::u16 && c.x(1).dtype() == DType::u16;
        const DType sum = positive ? DType::u32 : DType::i32;
        return matmul(cast(c.x(0), sum), cast(c.x(1), sum));
      });
}

void register_scaled_products(OpSet& ops) {
  ops.op("com.microsoft::QGemm")
      .in("A", kBytes, "A")
      .in("a_scale", kFloat, "S")
      .in("a_zero_point", kBytes, "A")
      .in("B", kBytes, "B")
      .in("b_scale", kFloat, "S")
      .in("b_zero_point", kBytes, "B")
      .in_optional("C", bit(DType::i32), "C")
      .in_optional("y_scale", kFloat, "S")
      .in_optional("y_zero_point", kBytes, "Y")
      .out("Y", kBytes | kFloat, "")
      .attr("alpha", 1.0)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .not_differentiable()
      .defined_as(quantized_gemm);
  ops.op("com.microsoft::QAttention")
      .in("input", kBytes, "A")
      .in("weight", kBytes, "B")
      .in("bias", kScales, "S")
      .in("input_scale", kScales, "S")
      .in("weight_scale", kScales, "S")
      .in_optional("mask_index", bit(DType::i32), "M")
      .in_optional("input_zero_point", kBytes, "A")
      .in_optional("weight_zero_point", kBytes, "B")
      .in_optional("past", kScales, "S")
      .out("output", kScales, "S")
      .out("present", kScales, "S")
      .attr("do_rotary", int64_t{0})
      .attr("mask_filter_value", -10000.0)
      .attr_required("num_heads")
      .attr("past_present_share_buffer", int64_t{0})
      .attr("scale", 0.0)
      .attr("unidirectional", int64_t{0})
      .not_differentiable()
      .defined_as(quantized_attention);
}

// --- layers --------------------------------------------------------------------------------------

// What each direction or each of its columns has, [D] or [D, N], for every column.
Value of_columns(Value each, const Dim& columns) {
  const Dims d = each.dims();
  return d.size() == 1 ? expand(unsqueeze(each, {1}), {d[0], columns}) : each;
}

// One zero point in their place where it is known that all are the same: most often none is left.
Value one_of(Value zero_points, const Dim& columns) {
  const Tensor* known = constant_of(zero_points);
  bool same = known && known->count() > 0;
  for (int64_t i = 1; same && i < known->count(); ++i)
    same = element_as_double(*known, i) == element_as_double(*known, 0);
  if (same) return zero_points.graph->scalar(element_as_double(*known, 0), zero_points.dtype());
  const Value all = of_columns(zero_points, columns);
  return reshape(all, {product(all.dims())});
}

// x without the steps that no sequence has: they are not part of its range.
Value of_lengths(Value x, Value lengths) {
  const Value longest = reduce_max(cast(lengths, DType::i64), {0}, false);
  const Value has = positions(*x.graph, x.dim(0)) < longest;
  return where(reshape(has, {x.dim(0), 1, 1}), x, number(0.0, x));
}

// The gates' sums without the states' part, [T, B, 4 H D]: all steps are rounded to bytes at once.
Value sums_of_inputs(const OpCall& c, const Dim& columns) {
  const Value x = c.has(4) ? of_lengths(c.x(0), c.x(4)) : c.x(0);
  const Dims steps = x.dims(), w = c.x(1).dims();
  const Quantized bytes = dynamically(reshape(x, {steps[0] * steps[1], steps[2]}));
  const Dim all = w[0] * columns;
  const Value weight = reshape(transpose(c.x(1), {1, 0, 2}), {w[1], all});
  const Value factor = reshape(of_columns(c.x(8), columns), {all});
  Value sums = cast(integer_product(bytes.q, weight, bytes.zero_point, one_of(c.x(9), columns)),
                    DType::f32) *
               (bytes.scale * factor);
  if (c.has(3)) {
    const Value bias = slice(c.x(3), 1, 0, columns) + slice(c.x(3), 1, columns, columns * 2);
    sums = sums + reshape(bias, {all});
  }
  return reshape(sums, {steps[0], steps[1], all});
}

Outputs dynamic_lstm(const OpCall& c) {
  const Dim columns = c.x(2).dim(-1);
  const Dims zeros = c.x(11).dims();
  const Value zero =
      zeros.size() == 1 ? reshape(c.x(11), {zeros[0], 1, 1}) : unsqueeze(c.x(11), {1});
  const Value r = swap_last(centred(c.x(2), zero, DType::f32));
  const std::vector<Value> in{
      sums_of_inputs(c, columns), r, of_columns(c.x(10), columns), c.x(4), c.x(5), c.x(6), c.x(7)};
  Attrs attrs = c.attrs();
  attrs.erase("hidden_size");
  return c.graph().emit("ort::DynamicQuantizeLSTM", in, attrs, static_cast<int>(c.outputs()));
}

// Input `at` with the scale and zero point that lie apart from it.
Value embedding(const OpCall& c, size_t at, size_t scale, size_t zero) {
  return centred(c.x(at), c.x(zero), DType::f32) * reshape(c.x(scale), {});
}

Outputs quantized_embeddings(const OpCall& c) {
  const bool segments = c.has(1);
  check(c.has(4) == segments && c.has(10) == segments && c.has(15) == segments,
        "[QEmbedLayerNormalization] the inputs of segments are given in part");
  const std::vector<Value> in{c.x(0),
                              c.x(1),
                              embedding(c, 2, 8, 13),
                              embedding(c, 3, 9, 14),
                              segments ? embedding(c, 4, 10, 15) : Value{},
                              embedding(c, 5, 11, 16),
                              embedding(c, 6, 12, 17),
                              c.x(7)};
  return c.graph().emit("com.microsoft::EmbedLayerNormalization", in, c.attrs(),
                        static_cast<int>(c.outputs()));
}

void register_layers(OpSet& ops) {
  ops.op("com.microsoft::DynamicQuantizeLSTM")
      .in("X", kFloat)
      .in("W", kBytes, "W")
      .in("R", kBytes, "W")
      .in_optional("B", kFloat)
      .in_optional("sequence_lens", bit(DType::i32), "L")
      .in_optional("initial_h", kFloat)
      .in_optional("initial_c", kFloat)
      .in_optional("P", kFloat)
      .in("W_scale", kFloat)
      .in("W_zero_point", kBytes, "W")
      .in("R_scale", kFloat)
      .in("R_zero_point", kBytes, "W")
      .out("Y", kFloat)
      .out("Y_h", kFloat)
      .out("Y_c", kFloat)
      .attr_optional("activations")
      .attr_optional("activation_alpha")
      .attr_optional("activation_beta")
      .attr_optional("clip")
      .attr("direction", std::string("forward"))
      .attr_optional("hidden_size")
      .attr("input_forget", int64_t{0})
      .not_differentiable()
      .defined_as(dynamic_lstm);
  OpSchema& embed = ops.op("com.microsoft::QEmbedLayerNormalization")
                        .in("input_ids", bit(DType::i32), "I")
                        .in_optional("segment_ids", bit(DType::i32), "I")
                        .in("word_embedding", kBytes)
                        .in("position_embedding", kBytes)
                        .in_optional("segment_embedding", kBytes)
                        .in("gamma", kBytes)
                        .in("beta", kBytes)
                        .in_optional("mask", bit(DType::i32), "I");
  for (const char* name :
       {"word_embedding", "position_embedding", "segment_embedding", "gamma", "beta"})
    embed.in_optional(std::string(name) + "_scale", kFloat, "S");
  for (const char* name :
       {"word_embedding", "position_embedding", "segment_embedding", "gamma", "beta"})
    embed.in_optional(std::string(name) + "_zero_point", kBytes);
  embed.out("layernorm_out", kFloat, "S")
      .out("mask_index_out", bit(DType::i32), "I")
      .attr("epsilon", 1e-12)
      .not_differentiable()
      .defined_as(quantized_embeddings);
}

}  // namespace

static void register_quantized_products(OpSet& ops) {
  register_float_products(ops);
  register_scaled_products(ops);
  register_layers(ops);
}

const Family<OpSet> kQuantizedProductsOps("ops", "microsoft_quantized_products",
                                          register_quantized_products);

}  // namespace ort::microsoft
