// GroupQueryAttention and RotaryEmbedding, as model builders write them for decoders. B sentences,
// N heads of queries and K of keys, of size D; S new tokens, T places of the cache.
#include "csrc/ops/microsoft/attention.h"

namespace ort::microsoft {
namespace {

// --- RotaryEmbedding -----------------------------------------------------------------------------

// The place of each of S tokens, [B, S]: given, or from one number on.
Value token_places(Value given, const Dim& batch, const Dim& tokens) {
  const Dims d = given.dims();
  if (d.size() == 2) return given;
  check(d.size() <= 1, "[RotaryEmbedding] position_ids has shape {}, expected [1] or [B, S]", d);
  return expand(unsqueeze(positions(*given.graph, tokens) + reshape(given, {1}), {0}),
                {batch, tokens});
}

// x [B, N, S, D] with its pairs turned.
Value turned(Value x, Value cos, Value sin, Value position_ids, int64_t size, bool interleaved) {
  return x.graph->emit1("RotaryEmbedding", {x, cos, sin, position_ids},
                        {{"interleaved", int64_t{interleaved}}, {"rotary_embedding_dim", size}});
}

Value rotary(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value x = c.x(0), cos = c.x(2), sin = c.x(3);
  check(attrs.i("is_packed_batching") == 0,
        "[RotaryEmbedding] is_packed_batching is 1, which is not supported");
  const Dims d = x.dims();
  check(d.size() == 3 || d.size() == 4,
        "[RotaryEmbedding] input has shape {}, expected [B, S, H] or [B, N, S, D]", d);
  const int64_t size = attrs.i("rotary_embedding_dim"), given = attrs.i("num_heads");
  Value apart = x;
  if (d.size() == 3) {
    check(size == 0 || given > 0, "[RotaryEmbedding] rotary_embedding_dim needs num_heads");
    apart = split_heads(x, given > 0 ? Dim(given) : floor_div(d[2], cos.dim(1) * Dim(2)));
  }
  const Value at = token_places(c.x(1), d[0], apart.dim(2));
  const Value y = turned(apart, cos, sin, at, size, attrs.i("interleaved") != 0);
  return d.size() == 3 ? join_heads(y) : y;
}

// --- GroupQueryAttention -------------------------------------------------------------------------

enum GqaInput : size_t {
  kGqaQuery,
  kGqaKey,
  kGqaValue,
  kGqaPastKey,
  kGqaPastValue,
  kGqaLast,   // seqlens_k [B]: the place of each sentence's last token
  kGqaTotal,  // total_sequence_length: places of the cache that this call may use
  kGqaCos,
  kGqaSin,
  kGqaPositions,
  kGqaAdded,
  kGqaSink,
  kGqaKeyScale,
  kGqaValueScale,
  kGqaQueryNorm,
  kGqaKeyNorm
};

void refuse_unknown(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  for (const char* name : {"k_quant_type", "v_quant_type"})
    check(attrs.s(name) == "NONE", "[GroupQueryAttention] {} is '{}', expected NONE", name,
          attrs.s(name));
  check(attrs.i("sliding_window_cache") == 0,
        "[GroupQueryAttention] sliding_window_cache is 1, which is not supported");
  check(!c.has(kGqaKeyScale) && !c.has(kGqaValueScale),
        "[GroupQueryAttention] the cache has scales, which are not supported");
  check(c.has(kGqaKey) == c.has(kGqaValue),
        "[GroupQueryAttention] key and value are given one without the other");
  check(c.has(kGqaPastKey) == c.has(kGqaPastValue),
        "[GroupQueryAttention] past_key and past_value are given one without the other");
}

// Operands apart, or q, k and v in one.
Heads group_heads(const OpCall& c) {
  const int64_t n = c.attrs().i("num_heads"), shared = c.attrs().i("kv_num_heads");
  check(n > 0 && shared > 0 && n % shared == 0,
        "[GroupQueryAttention] num_heads is {}, kv_num_heads is {}, expected a multiple", n,
        shared);
  const Value q = c.x(kGqaQuery);
  check(q.rank() == 3, "[GroupQueryAttention] query has shape {}, expected [B, S, H]", q.dims());
  if (c.has(kGqaKey))
    return {split_heads(q, n), split_heads(c.x(kGqaKey), shared),
            split_heads(c.x(kGqaValue), shared)};
  const Dim size = floor_div(q.dim(2), Dim(n) + Dim(shared) * 2);
  const Dim k = size * Dim(n), v = k + size * Dim(shared);
  return {split_heads(slice(q, 2, 0, k), n), split_heads(slice(q, 2, k, v), shared),
          split_heads(slice(q, 2, v, v + size * Dim(shared)), shared)};
}

// Each head of size D by its root mean square.
Value normed(Value x, Value scale, double epsilon) {
  return scale ? x.graph->emit1("RMSNormalization", {x, scale}, {{"epsilon", epsilon}}) : x;
}

// The cache with the new tokens at their places, [B, K, T, D].
Value written(Value past, Value fresh, Value at, const Dim& capacity) {
  Graph& g = *fresh.graph;
  const Dims d = fresh.dims();
  const Dims whole{d[0], d[1], capacity, d[3]};
  const Value cache =
      past ? pad_axis(past, 2, 0, capacity - past.dim(2)) : full(g, whole, 0.0, fresh.dtype());
  const Value index = expand(reshape(at, {d[0], 1, d[2], 1}), d);
  return g.emit1("ScatterElements", {cache, index, fresh}, {{"axis", int64_t{2}}});
}

// Keys that a query at place `at` [B, S] may see.
Value visible(const OpCall& c, Value at, Value total, const Dim& capacity) {
  Graph& g = c.graph();
  const Value key = positions(g, capacity);
  const bool causal = c.attrs().i("causal") != 0;
  const int64_t window = c.attrs().i("local_window_size");
  const Dims d = at.dims();
  const Value query = reshape(at, {d[0], 1, d[1], 1});
  Value seen = total > key;
  if (causal) seen = logical_and(seen, not_above(key, query));
  check(window == -1 || (window > 0 && causal),
        "[GroupQueryAttention] local_window_size is {} and causal is {}, expected -1, or a window "
        "of causal attention",
        window, int64_t{causal});
  if (window > 0) seen = logical_and(seen, key > query - static_cast<double>(window));
  return seen;
}

// How many places the cache has: as many as this call uses, or as it had.
Dim capacity_of(const OpCall& c, const Dim& fresh) {
  const Dim past = c.has(kGqaPastKey) ? c.x(kGqaPastKey).dim(2) : Dim(0);
  const auto total = c.graph().contents(c.x(kGqaTotal).id);
  check(total && total->size() == 1,
        "[GroupQueryAttention] total_sequence_length is not known, expected one number");
  if ((*total)[0] == past + fresh) return past + fresh;
  return past.is(0) ? (*total)[0] : max(past, (*total)[0]);
}

Outputs group_query_attention(const OpCall& c) {
  refuse_unknown(c);
  const Attrs& attrs = c.attrs();
  Graph& g = c.graph();
  Heads heads = group_heads(c);
  const Dim batch = heads.q.dim(0), fresh = heads.q.dim(2), capacity = capacity_of(c, fresh);
  const double epsilon = attrs.f("qk_norm_epsilon");
  heads.q = normed(heads.q, c.x(kGqaQueryNorm), epsilon);
  heads.k = normed(heads.k, c.x(kGqaKeyNorm), epsilon);
  // A prompt's tokens, all that there are, start at 0, whatever pads its shorter sentences.
  const Value total = reshape(cast(c.x(kGqaLast), DType::i64), {batch, 1}) + 1.0;
  const Value most = reshape(cast(c.x(kGqaTotal), DType::i64), {});
  const Value before = total - g.size(fresh);
  const Value first = where(equal(most, g.size(fresh)), before - before, before);
  const Value at = positions(g, fresh) + first;
  if (attrs.i("do_rotary") != 0) {
    check(c.has(kGqaCos) && c.has(kGqaSin),
          "[GroupQueryAttention] do_rotary needs cos_cache, sin_cache");
    const Value places = c.has(kGqaPositions) ? c.x(kGqaPositions) : at;
    const bool interleaved = attrs.i("rotary_interleaved") != 0;
    const Dim half = c.x(kGqaCos).dim(1);
    check(half.value().has_value(), "[GroupQueryAttention] cos_cache has {} columns", half);
    const int64_t size = 2 * *half.value();
    heads.q = turned(heads.q, c.x(kGqaCos), c.x(kGqaSin), places, size, interleaved);
    heads.k = turned(heads.k, c.x(kGqaCos), c.x(kGqaSin), places, size, interleaved);
  }
  heads.k = written(c.x(kGqaPastKey), heads.k, at, capacity);
  heads.v = written(c.x(kGqaPastValue), heads.v, at, capacity);
  const int64_t asked = attrs.i("qk_output");
  check(asked >= 0 && asked <= 2, "[GroupQueryAttention] qk_output is {}, expected 0 to 2", asked);
  Scores scores;
  scores.scale = scale_of(attrs);
  scores.cap = attrs.f("softcap");
  if (const Value added = c.x(kGqaAdded))
    scores.added = pad_axis(added, -1, 0, capacity - added.dim(-1));
  scores.seen = visible(c, at, reshape(total, {batch, 1, 1, 1}), capacity);
  scores.sink = c.x(kGqaSink);
  if (!scores.sink && attrs.i("smooth_softmax") != 0)
    scores.sink = full(g, {heads.q.dim(1)}, 0.0, heads.q.dtype());
  const Attended made = attend(heads, scores, asked != 0);
  Outputs out{join_heads(made.y), heads.k, heads.v};
  if (asked != 0) out.push_back(asked == 1 ? made.masked : made.shares);
  return out;
}

void register_group_query(OpSet& ops) {
  ops.op("com.microsoft::GroupQueryAttention")
      .in("query", kFloating)
      .in_optional("key", kFloating)
      .in_optional("value", kFloating)
      .in_optional("past_key", kFloating)
      .in_optional("past_value", kFloating)
      .in("seqlens_k", bit(DType::i32), "M")
      .in("total_sequence_length", bit(DType::i32), "M")
      .host()
      .in_optional("cos_cache", kFloating)
      .in_optional("sin_cache", kFloating)
      .in_optional("position_ids", kInt64, "P")
      .in_optional("attention_bias", kFloating)
      .in_optional("head_sink", kFloating)
      .in_optional("k_scale", bit(DType::f32), "S")
      .in_optional("v_scale", bit(DType::f32), "S")
      .in_optional("q_norm_weight", kFloating)
      .in_optional("k_norm_weight", kFloating)
      .out("output")
      .out("present_key")
      .out("present_value")
      .out("output_qk")
      .attr("causal", int64_t{1})
      .attr("do_rotary", int64_t{0})
      .attr("k_quant_type", std::string("NONE"))
      .attr("kv_cache_bit_width", int64_t{0})
      .attr_required("kv_num_heads")
      .attr("local_window_size", int64_t{-1})
      .attr_required("num_heads")
      .attr("qk_norm_epsilon", 1e-6)
      .attr("qk_output", int64_t{0})
      .attr("rotary_interleaved", int64_t{0})
      .attr("scale", 0.0)
      .attr("sliding_window_cache", int64_t{0})
      .attr("smooth_softmax", int64_t{0})
      .attr("softcap", 0.0)
      .attr("v_quant_type", std::string("NONE"))
      .defined_as(group_query_attention);
}

}  // namespace

static void register_decoders(OpSet& ops) {
  ops.op("com.microsoft::RotaryEmbedding")
      .in("input", kFloating)
      .in("position_ids", kInt64, "P")
      .in("cos_cache", kFloating)
      .in("sin_cache", kFloating)
      .out("output")
      .attr("interleaved", int64_t{0})
      .attr("is_packed_batching", int64_t{0})
      .attr("num_heads", int64_t{0})
      .attr("rotary_embedding_dim", int64_t{0})
      .attr("scale", 1.0)  // onnxruntime reads it and does nothing with it
      .defined_as(rotary);
  register_group_query(ops);
}

const Family<OpSet> kGroupQueryOps("ops", "microsoft_decoders", register_decoders);

}  // namespace ort::microsoft
