// Normalisations with what onnxruntime fuses into them: a residual, embeddings, an activation, and
// axes with the channels last.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

Outputs layer_norm(const OpCall& c, Value x, Value scale, Value bias, int count) {
  const std::vector<Value> in{x, scale, bias};
  return c.graph().emit("LayerNormalization", in, {{"epsilon", c.attrs().f("epsilon")}}, count);
}

// 1 / sqrt(mean(x^2) + epsilon) over the last axis, in float32.
Value inverse_rms(Value x, double epsilon) {
  const Value wide = cast(x, DType::f32);
  return reciprocal(sqrt(reduce_mean(wide * wide, {-1}) + epsilon));
}

// input + skip + bias, normalised; mean and deviation of the rows; the sum.
Outputs skip_layer_norm(const OpCall& c) {
  Value sum = c.x(0) + c.x(1);
  if (c.has(4)) sum = sum + c.x(4);
  Outputs out = layer_norm(c, sum, c.x(2), c.x(3), 3);
  out.push_back(sum);
  return out;
}

Outputs skip_rms_norm(const OpCall& c) {
  Value sum = c.x(0) + c.x(1);
  if (c.has(3)) sum = sum + c.x(3);
  const double epsilon = c.attrs().f("epsilon");
  const Value y = c.graph().emit1("RMSNormalization", {sum, c.x(2)}, {{"epsilon", epsilon}});
  return {y, reduce_mean(cast(sum, DType::f32), {-1}), inverse_rms(sum, epsilon), sum};
}

Value rows_of(Value table, Value indices) {
  return table.graph->emit1("Gather", {table, indices}, {{"axis", int64_t{0}}});
}

// The sum of a token's word, place and segment.
Value embedded(const OpCall& c, Value words, Value places, Value segments) {
  const Dims ids = c.x(0).dims();
  check(ids.size() == 2, "[EmbedLayerNormalization] input_ids has shape {}, expected [B, S]", ids);
  const Value place = c.has(8) ? c.x(8) : positions(c.graph(), ids[1]);
  const Value sum = rows_of(words, c.x(0)) + rows_of(places, place);
  return segments && c.has(1) ? sum + rows_of(segments, c.x(1)) : sum;
}

// How many words of each sentence the mask leaves.
Value mask_index(const OpCall& c, Value mask) {
  const Dim batch = c.x(0).dim(0);
  if (!mask) return full(c.graph(), {batch}, 0.0, DType::i32);
  return reduce_sum(cast(equal(mask, number(1.0, mask)), DType::i32), {1}, false);
}

Outputs embed_layer_norm(const OpCall& c) {
  const Value sum = embedded(c, c.x(2), c.x(3), c.x(4));
  return {layer_norm(c, sum, c.x(5), c.x(6), 1)[0], mask_index(c, c.x(7)), sum};
}

// x [N, .., C], or [N, C, ..] unless `channels_last`, normalised by groups; then silu.
Value group_norm(const OpCall& c, Value x) {
  const Attrs& attrs = c.attrs();
  const bool last = attrs.i("channels_last") != 0;
  check(x.rank() >= 3, "[GroupNorm] X has shape {}, expected channels and places of images",
        x.dims());
  const Value y = c.graph().emit1(
      "GroupNormalization",
      {last ? channels_first(x) : x, cast(c.x(1), x.dtype()), cast(c.x(2), x.dtype())},
      {{"epsilon", attrs.f("epsilon")}, {"num_groups", attrs.i("groups")}});
  const int64_t activation = attrs.i("activation");
  check(activation == 0 || activation == 1, "[GroupNorm] activation is {}, expected 0 or 1",
        activation);
  const Value active = activation == 1 ? unary("Swish", y) : y;
  return last ? channels_last(active) : active;
}

// A residual [N, C], or with the axes of x, and a bias [C], beside x.
Outputs skip_group_norm(const OpCall& c) {
  const Value x = c.x(0);
  const bool last = c.attrs().i("channels_last") != 0;
  const auto beside = [&](Value each) {
    const Dims d = each.dims();
    if (d.size() == x.dims().size()) return each;
    check(!d.empty(), "[SkipGroupNorm] skip or bias is one number, expected [N, C] or [C]");
    Dims wide(x.dims().size(), Dim(1));
    wide[last ? wide.size() - 1 : 1] = d.back();
    if (d.size() == 2) wide[0] = d[0];
    return reshape(each, wide);
  };
  Value sum = x + beside(c.x(3));
  if (c.has(4)) sum = sum + beside(c.x(4));
  return {group_norm(c, sum), sum};
}

OpSchema& group_attrs(OpSchema& schema) {
  return schema.attr_required("activation")
      .attr("channels_last", int64_t{1})
      .attr("epsilon", 1e-5)
      .attr_required("groups");
}

OpSchema& skip_outputs(OpSchema& schema) {
  return schema.out("output")
      .out("mean", bit(DType::f32), "U")
      .out("inv_std_var", bit(DType::f32), "U")
      .out("input_skip_bias_sum")
      .attr("epsilon", 1e-12);
}

}  // namespace

static void register_norms(OpSet& ops) {
  skip_outputs(ops.op("com.microsoft::SkipLayerNormalization")
                   .in("input", kFloating)
                   .in("skip", kFloating)
                   .in("gamma", kFloating)
                   .in_optional("beta", kFloating)
                   .in_optional("bias", kFloating))
      .defined_as(skip_layer_norm);
  skip_outputs(ops.op("com.microsoft::SkipSimplifiedLayerNormalization")
                   .in("input", kFloating)
                   .in("skip", kFloating)
                   .in("gamma", kFloating)
                   .in_optional("bias", kFloating))
      .defined_as(skip_rms_norm);
  ops.op("com.microsoft::EmbedLayerNormalization")
      .in("input_ids", bit(DType::i32), "I")
      .in_optional("segment_ids", bit(DType::i32), "I")
      .in("word_embedding", kFloating)
      .in("position_embedding", kFloating)
      .in_optional("segment_embedding", kFloating)
      .in("gamma", kFloating)
      .in("beta", kFloating)
      .in_optional("mask", bit(DType::i32), "I")
      .in_optional("position_ids", bit(DType::i32), "I")
      .out("output")
      .out("mask_index", bit(DType::i32), "I")
      .out("embedding_sum")
      .attr("epsilon", 1e-12)
      .attr("mask_index_type", int64_t{1})
      .defined_as(embed_layer_norm);
  group_attrs(ops.op("com.microsoft::GroupNorm")
                  .in("X", kFloating)
                  .in("gamma", kFloating, "M")
                  .in("beta", kFloating, "M")
                  .out("Y"))
      .defined_as([](const OpCall& c) { return group_norm(c, c.x(0)); });
  group_attrs(ops.op("com.microsoft::SkipGroupNorm")
                  .in("X", kFloating)
                  .in("gamma", kFloating, "M")
                  .in("beta", kFloating, "M")
                  .in("skip", kFloating)
                  .in_optional("bias", kFloating)
                  .out("Y")
                  .out("S"))
      .defined_as(skip_group_norm);
}

const Family<OpSet> kNormOps("ops", "microsoft_norm", register_norms);

}  // namespace ort
