// Attention and MultiHeadAttention of onnxruntime's optimizer. B sentences, N heads of size D, S
// queries, T keys.
#include "csrc/ops/microsoft/attention.h"

namespace ort::microsoft {
namespace {

// Keys up to each query's place, which is `past` of its own; absent where that is 0, as an op of
// ours says it.
void ask_causal(const Attrs& attrs, const Heads& heads, const Dim& past, Scores& scores) {
  if (attrs.i("unidirectional") == 0) return;
  scores.causal = past.is(0);
  if (scores.causal) return;
  Graph& g = *heads.q.graph;
  const Value query = unsqueeze(positions(g, heads.q.dim(2)), {1}) + g.size(past);
  scores.seen = not_above(positions(g, heads.k.dim(2)), query);
}

// Which keys lie before a sentence's end, and from its start on.
Value within(Value mask, const Heads& heads) {
  Graph& g = *heads.q.graph;
  const Dim batch = heads.q.dim(0);
  const Value key = positions(g, heads.k.dim(2));
  const Value ends = slice(mask, 0, 0, batch);
  const auto beside = [&](Value each) { return reshape(cast(each, DType::i64), {batch, 1, 1, 1}); };
  const Value seen = beside(ends) > key;
  if (mask.dim(0) == batch) return seen;
  const Value starts = slice(mask, 0, batch, batch * Dim(2));
  return logical_and(seen, not_above(beside(starts), key));
}

// What is added to the scores: `filter` where a key is masked. The mask: lengths [B], ends and
// starts [2 B], or 0 and 1 of [B, T], [B, S, T], [B, 1, M, M] with the queries from `past` on.
Value added_mask(Value mask, const Heads& heads, const Dim& past, double filter) {
  if (!mask) return {};
  const Dims d = mask.dims();
  const Dim batch = heads.q.dim(0), queries = heads.q.dim(2), keys = heads.k.dim(2);
  Value seen;
  if (d.size() == 1) {
    check(d[0] == batch || d[0] == batch * Dim(2),
          "the mask has shape {}, expected one of [{}], [{}], [B, T], [B, S, T], [B, 1, M, M]", d,
          batch, batch * Dim(2));
    seen = within(mask, heads);
  } else {
    check(d.size() <= 4, "the mask has shape {}, expected up to 4 axes", d);
    if (d.size() == 2) mask = reshape(mask, {d[0], 1, 1, d[1]});
    if (d.size() == 3) mask = reshape(mask, {d[0], 1, d[1], d[2]});
    if (d.size() == 4) mask = slice(slice(mask, 2, past, past + queries), 3, 0, keys);
    seen = logical_not(equal(mask, number(0.0, mask)));
  }
  // A filter beyond a half's range is minus infinity there.
  const Value zero = number(0.0, heads.q);
  return where(seen, zero, number(filter, heads.q));
}

// q, k, v side by side, [B, S, H + H + Hv].
Heads split_projection(Value x, const Attrs& attrs) {
  const Dim heads = attrs.i("num_heads");
  const Dim size = x.dim(2);
  Dims widths(3, floor_div(size, 3));
  if (attrs.has("qkv_hidden_sizes")) {
    const auto& sizes = attrs.ints("qkv_hidden_sizes");
    check(sizes.empty() || sizes.size() == 3,
          "[Attention] qkv_hidden_sizes is {}, expected 3 sizes", sizes);
    for (size_t i = 0; i < sizes.size(); ++i) widths[i] = sizes[i];
  }
  const Dim k = widths[0], v = k + widths[1];
  return {split_heads(slice(x, 2, 0, k), heads), split_heads(slice(x, 2, k, v), heads),
          split_heads(slice(x, 2, v, v + widths[2]), heads)};
}

void refuse_asked(const Attrs& attrs, std::initializer_list<const char*> names) {
  for (const char* name : names)
    check(attrs.i(name, 0) == 0, "attribute '{}' is {}, which is not supported", name,
          attrs.i(name, 0));
}

}  // namespace

std::optional<double> scale_of(const Attrs& attrs) {
  const double given = attrs.f("scale");
  return given != 0.0 ? std::optional(given) : std::nullopt;
}

Outputs self_attention(const OpCall& c, const AttentionInputs& in) {
  const Attrs& attrs = c.attrs();
  refuse_asked(attrs, {"do_rotary", "past_present_share_buffer"});
  check(in.projected.dims().size() == 3, "[Attention] input gives {}, expected [B, S, H + H + Hv]",
        in.projected.dims());
  Heads heads = split_projection(in.projected, attrs);
  Dim past = 0;
  if (in.past) {
    check(in.past.dims().size() == 5, "[Attention] past has shape {}, expected [2, B, N, P, D]",
          in.past.dims());
    past = in.past.dim(3);
    const auto before = [&](int64_t i) { return squeeze(slice(in.past, 0, i, i + 1), {0}); };
    heads.k = concat({before(0), heads.k}, 2);
    heads.v = concat({before(1), heads.v}, 2);
  }
  Scores scores;
  scores.scale = scale_of(attrs);
  scores.added = added_mask(in.mask, heads, past, attrs.f("mask_filter_value"));
  if (in.bias) scores.added = scores.added ? scores.added + in.bias : in.bias;
  ask_causal(attrs, heads, past, scores);
  Outputs out{join_heads(attend(heads, scores).y)};
  if (c.outputs() > 1) out.push_back(concat({unsqueeze(heads.k, {0}), unsqueeze(heads.v, {0})}, 0));
  return out;
}

namespace {

Outputs attention(const OpCall& c) {
  Value projected = matmul(c.x(0), c.x(1));
  if (c.has(2)) projected = projected + c.x(2);
  check(!c.has(6), "[Attention] past_sequence_length is given, which is not supported");
  return self_attention(c, {projected, c.x(3), c.x(4), c.x(5)});
}

enum MultiHeadInput : size_t {
  kQuery,
  kKey,
  kValue,
  kBias,
  kPadding,
  kAdded,
  kPastKey,
  kPastValue,
  kPastLength,
  kBeams
};

// One of several [B, S, N, D] that lie side by side at axis 3 of x.
Value one_of_packed(Value x, int64_t which) {
  return transpose(squeeze(slice(x, 3, which, which + 1), {3}), {0, 2, 1, 3});
}

// Operands apart, packed in twos or threes, or with keys that have their heads already.
Heads multi_heads(const OpCall& c) {
  const Dim n = c.attrs().i("num_heads");
  Value q = c.x(kQuery), k = c.x(kKey), v = c.x(kValue);
  if (!k) {
    check(q.rank() == 5,
          "[MultiHeadAttention] query has shape {} and there is no key, expected "
          "[B, S, N, 3, D]",
          q.dims());
    return {one_of_packed(q, 0), one_of_packed(q, 1), one_of_packed(q, 2)};
  }
  // A part of the bias [H + H + Hv].
  const auto biased = [&](Value x, const Dim& from) {
    return c.has(kBias) ? x + slice(c.x(kBias), 0, from, from + x.dim(2)) : x;
  };
  const Dim width = q.dim(-1);
  Heads heads{split_heads(biased(q, 0), n), {}, {}};
  if (!v) {
    check(k.rank() == 5,
          "[MultiHeadAttention] key has shape {} and there is no value, expected [B, T, N, 2, D]",
          k.dims());
    heads.k = one_of_packed(k, 0);
    heads.v = one_of_packed(k, 1);
  } else if (k.rank() == 4) {
    check(v.rank() == 4,
          "[MultiHeadAttention] key has shape {}, value has shape {}, expected both "
          "[B, N, T, D]",
          k.dims(), v.dims());
    heads.k = k;
    heads.v = v;
  } else {
    heads.k = split_heads(biased(k, width), n);
    heads.v = split_heads(biased(v, width + width), n);
  }
  return heads;
}

Outputs multi_head_attention(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  check(!c.has(kPastLength) && !c.has(kBeams),
        "[MultiHeadAttention] past_sequence_length or cache_indirection is given, which is not "
        "supported");
  check(c.has(kPastKey) == c.has(kPastValue),
        "[MultiHeadAttention] past_key and past_value are given one without the other");
  Heads heads = multi_heads(c);
  Dim past = 0;
  if (c.has(kPastKey)) {
    past = c.x(kPastKey).dim(2);
    heads.k = concat({c.x(kPastKey), heads.k}, 2);
    heads.v = concat({c.x(kPastValue), heads.v}, 2);
  }
  Scores scores;
  scores.scale = scale_of(attrs);
  scores.added = added_mask(c.x(kPadding), heads, past, attrs.f("mask_filter_value"));
  if (c.has(kAdded)) scores.added = scores.added ? scores.added + c.x(kAdded) : c.x(kAdded);
  ask_causal(attrs, heads, past, scores);
  const Attended made = attend(heads, scores, c.outputs() > 3);
  Outputs out{join_heads(made.y), heads.k, heads.v};
  if (c.outputs() > 3) out.push_back(made.masked);
  return out;
}

OpSchema& mask_attrs(OpSchema& schema) {
  return schema.attr("mask_filter_value", -10000.0)
      .attr_required("num_heads")
      .attr("scale", 0.0)
      .attr("unidirectional", int64_t{0});
}

}  // namespace

static void register_attention(OpSet& ops) {
  mask_attrs(ops.op("com.microsoft::Attention")
                 .in("input", kFloating)
                 .in("weights", kFloating)
                 .in_optional("bias", kFloating)
                 .in_optional("mask_index", bit(DType::i32), "M")
                 .in_optional("past", kFloating)
                 .in_optional("attention_bias", kFloating)
                 .in_optional("past_sequence_length", bit(DType::i32), "M")
                 .out("output")
                 .out("present"))
      .attr("do_rotary", int64_t{0})
      .attr("past_present_share_buffer", int64_t{0})
      .attr_optional("qkv_hidden_sizes")
      .attr("rotary_embedding_dim", int64_t{0})
      .defined_as(attention);
  mask_attrs(ops.op("com.microsoft::MultiHeadAttention")
                 .in("query", kFloating)
                 .in_optional("key", kFloating)
                 .in_optional("value", kFloating)
                 .in_optional("bias", kFloating)
                 .in_optional("key_padding_mask", bit(DType::i32), "M")
                 .in_optional("attention_bias", kFloating)
                 .in_optional("past_key", kFloating)
                 .in_optional("past_value", kFloating)
                 .in_optional("past_sequence_length", bit(DType::i32), "M")
                 .in_optional("cache_indirection", bit(DType::i32), "M")
                 .out("output")
                 .out("present_key")
                 .out("present_value")
                 .out("qk"))
      .defined_as(multi_head_attention);
}

const Family<OpSet> kAttentionOps("ops", "microsoft_attention", register_attention);

}  // namespace ort::microsoft
