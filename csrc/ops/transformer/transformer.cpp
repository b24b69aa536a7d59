// The layers of transformers as ONNX has them, each by its parts: Attention with masks, windows and
// a cache, rotary positions, gates.
#include "csrc/ops/transformer/attention.h"

namespace ort {
namespace {

// --- Attention (ai.onnx 23, 24, 25) -------------------------------------------------------------

enum AttentionInput : size_t { kMask = 3, kPastKey, kPastValue, kValidKeys };

// x as [B, H, T, D]: of three axes, its last one are heads side by side.
Value in_heads(Value x, const Attrs& attrs, std::string_view number_of_heads) {
  const Dims d = x.dims();
  if (d.size() == 4) return x;
  check(d.size() == 3, "[Attention] an operand has shape {}, expected rank 3 or 4", d);
  const Attr* heads = attrs.find(number_of_heads);
  check(heads && std::get<int64_t>(*heads) > 0,
        "[Attention] operands of rank 3 need attribute '{}', a positive number", number_of_heads);
  return split_heads(x, std::get<int64_t>(*heads));
}

// A call's heads, with the cache before the keys.
Heads heads_of(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  Heads heads{in_heads(c.x(0), attrs, "q_num_heads"), in_heads(c.x(1), attrs, "kv_num_heads"),
              in_heads(c.x(2), attrs, "kv_num_heads")};
  check(c.has(kPastKey) == c.has(kPastValue),
        "[Attention] past_key and past_value are given one without the other");
  check(!c.has(kPastKey) || !c.has(kValidKeys),
        "[Attention] nonpad_kv_seqlen and past_key are both given");
  if (c.has(kPastKey)) {
    heads.k = concat({c.x(kPastKey), heads.k}, 2);
    heads.v = concat({c.x(kPastValue), heads.v}, 2);
  }
  return heads;
}

// Which keys a query may see by its place; absent: all. `causal`: whether that is asked here.
Value visible(const OpCall& c, const Heads& heads, bool causal) {
  Graph& g = c.graph();
  const int64_t left = c.attrs().i("left_window_size"), right = c.attrs().i("right_window_size");
  check(left >= -1 && right >= -1,
        "[Attention] the window is {} to the left and {} to the right, expected -1 or more", left,
        right);
  const Dim queries = heads.q.dim(2);
  const Value key = positions(g, heads.k.dim(2));
  Value seen;
  Value query = unsqueeze(positions(g, queries), {1});
  if (c.has(kValidKeys)) {
    const Value valid = reshape(c.x(kValidKeys), {heads.q.dim(0), 1, 1, 1});
    query = query + (valid - g.size(queries));
    seen = valid > key;
  } else if (c.has(kPastKey)) {
    query = query + g.size(c.x(kPastKey).dim(2));
  }
  if (causal) seen = both(seen, not_above(key, query));
  if (left >= 0) seen = both(seen, not_above(query - static_cast<double>(left), key));
  if (right >= 0) seen = both(seen, not_above(key, query + static_cast<double>(right)));
  return seen;
}

// A mask over all keys: what it does not reach is not seen.
void add_mask(const OpCall& c, const Heads& heads, Scores& scores) {
  if (!c.has(kMask)) return;
  const Dim keys = heads.k.dim(2);
  Value mask = c.x(kMask);
  const bool truths = mask.dtype() == DType::boolean;
  if (const Dim reached = mask.dim(-1); reached != keys) {
    if (!truths) scores.seen = c.graph().size(reached) > positions(c.graph(), keys);
    mask = pad_axis(mask, -1, 0, keys - reached);
  }
  (truths ? scores.seen : scores.added) = truths ? mask : cast(mask, heads.q.dtype());
}

std::optional<DType> softmax_precision(const Attrs& attrs, std::string_view op) {
  const Attr* given = attrs.find("softmax_precision");
  if (!given) return std::nullopt;
  const int64_t asked = std::get<int64_t>(*given);
  check(known_dtype(asked) && (bit(static_cast<DType>(asked)) & kFloating) != 0,
        "[{}] softmax_precision is {}, expected 1 (float32), 10 (float16), 11 (float64) or 16 "
        "(bfloat16)",
        op, asked);
  return static_cast<DType>(asked);
}

Outputs onnx_attention(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Heads heads = heads_of(c);
  const int64_t mode = attrs.i("qk_matmul_output_mode");
  check(mode >= 0 && mode < 4, "[Attention] qk_matmul_output_mode is {}, expected 0 to 3", mode);
  Scores scores;
  if (const Attr* scale = attrs.find("scale")) scores.scale = std::get<double>(*scale);
  scores.cap = attrs.f("softcap");
  scores.precision = softmax_precision(attrs, "Attention");
  const bool causal = attrs.i("is_causal") != 0;
  scores.causal = causal && !c.has(kPastKey) && !c.has(kValidKeys);
  add_mask(c, heads, scores);
  scores.seen = both(scores.seen, visible(c, heads, causal && !scores.causal));
  const Attended made = attend(heads, scores, c.outputs() > 3);
  Outputs out{c.x(0).dims().size() == 3 ? join_heads(made.y) : made.y, heads.k, heads.v};
  const Value stages[] = {made.scaled, made.capped, made.masked, made.shares};
  if (c.outputs() > 3) out.push_back(stages[mode]);
  return out;
}

void register_attention(OpSet& ops) {
  ops.op("Attention")
      .in("Q", kFloating)
      .in("K", kFloating)
      .in("V", kFloating, "V")
      .in_optional("attn_mask", kFloating | kIntegers | kBool, "M")
      .in_optional("past_key", kFloating)
      .in_optional("past_value", kFloating, "V")
      .in_optional("nonpad_kv_seqlen", bit(DType::i64), "L")
      .out("Y")
      .out("present_key")
      .out("present_value")
      .out("qk_matmul_output")
      .since(23)
      .attr("is_causal", int64_t{0})
      .attr_optional("kv_num_heads")
      .attr("left_window_size", int64_t{-1})
      .attr_optional("q_num_heads")
      .attr("qk_matmul_output_mode", int64_t{0})
      .attr("right_window_size", int64_t{-1})
      .attr_optional("scale")
      .attr("softcap", 0.0)
      .attr_optional("softmax_precision")
      .defined_as(onnx_attention);
}

// --- FlexAttention (ai.onnx.preview 1) ----------------------------------------------------------

// Its graphs change the scores before softmax and the shares after it.
Value flex_attention(const OpCall& c) {
  for (size_t i = 0; i < 3; ++i)
    check(c.x(i).rank() == 4, "[FlexAttention] input {} has shape {}, expected [B, H, T, D]", i,
          c.x(i).dims());
  Scores scores;
  if (const Attr* scale = c.attrs().find("scale")) scores.scale = std::get<double>(*scale);
  scores.precision = softmax_precision(c.attrs(), "FlexAttention");
  scores.change_scores = [&](Value x) { return c.apply("score_mod", x); };
  scores.change_shares = [&](Value x) { return c.apply("prob_mod", x); };
  return attend({c.x(0), c.x(1), c.x(2)}, scores).y;
}

void register_flex_attention(OpSet& ops) {
  ops.op("ai.onnx.preview::FlexAttention")
      .in("Q", kFloating)
      .in("K", kFloating)
      .in("V", kFloating)
      .out("Y")
      .attr_optional("scale")
      .attr_optional("softmax_precision")
      .applies("score_mod")
      .applies("prob_mod")
      .defined_as(flex_attention);
}

// --- RotaryEmbedding (ai.onnx 23) ---------------------------------------------------------------

// Pairs of x are turned by the angle of their position (Su et al. 2021, arXiv 2104.09864).
Value rotary(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Value x = in_heads(c.x(0), attrs, "num_heads");
  const Dims d = x.dims();
  const bool interleaved = attrs.i("interleaved") != 0;
  const int64_t asked = attrs.i("rotary_embedding_dim");
  const Dim turned = asked > 0 ? Dim(asked) : d[3], half = floor_div(turned, 2);
  const auto angles = [&](size_t cache) {
    const Value table = c.x(cache);
    check(!table.dim(-1).value() || !half.value() || table.dim(-1) == half,
          "[RotaryEmbedding] input {} has shape {}, expected {} columns", cache, table.dims(),
          half);
    const Value rows =
        c.has(3) ? c.graph().emit1("Gather", {table, c.x(3)}, {{"axis", int64_t{0}}}) : table;
    return unsqueeze(rows, {1});
  };
  const Value cos = angles(1), sin = angles(2);
  const Value pairs = turned == d[3] ? x : slice(x, 3, 0, turned);
  const Value a = interleaved ? slice(pairs, 3, 0, turned, 2) : slice(pairs, 3, 0, half);
  const Value b = interleaved ? slice(pairs, 3, 1, turned, 2) : slice(pairs, 3, half, turned);
  const Value real = a * cos - b * sin, imaginary = a * sin + b * cos;
  Value y = concat({real, imaginary}, 3);
  if (interleaved)
    y = reshape(concat({unsqueeze(real, {4}), unsqueeze(imaginary, {4})}, 4),
                {d[0], d[1], d[2], turned});
  if (turned != d[3]) y = concat({y, slice(x, 3, turned, d[3])}, 3);
  return c.x(0).dims().size() == 4 ? y : join_heads(y);
}

void register_rotary(OpSet& ops) {
  ops.op("RotaryEmbedding")
      .in("X", kFloating)
      .in("cos_cache", kFloating)
      .in("sin_cache", kFloating)
      .in_optional("position_ids", bit(DType::i64), "P")
      .out("Y")
      .since(23)
      .attr("interleaved", int64_t{0})
      .attr_optional("num_heads")
      .attr("rotary_embedding_dim", int64_t{0})
      .defined_as(rotary);
}

// --- TensorScatter (ai.onnx 24) -----------------------------------------------------------------

// A cache with new steps written from a place of each batch on.
Value tensor_scatter(const OpCall& c) {
  Graph& g = c.graph();
  const Value cache = c.x(0), update = c.x(1);
  const int64_t rank = cache.rank(), given = c.attrs().i("axis");
  const std::string& mode = c.attrs().s("mode");
  check(mode == "linear" || mode == "circular",
        "[TensorScatter] mode is '{}', expected linear or circular", mode);
  check(given >= -rank && given < rank && (given + rank) % rank != 0,
        "[TensorScatter] axis is {}, expected one of x's {} axes that is not the batch", given,
        rank);
  const int64_t axis = (given + rank) % rank;
  const Dims d = update.dims();
  Dims along(d.size(), Dim(1)), first(d.size(), Dim(1));
  along[static_cast<size_t>(axis)] = d[static_cast<size_t>(axis)];
  first[0] = d[0];
  Value at = reshape(positions(g, d[static_cast<size_t>(axis)]), along);
  if (c.has(2)) at = at + reshape(c.x(2), first);
  if (mode == "circular") at = g.emit1("Mod", {at, g.size(cache.dim(axis))});
  return g.emit1("ScatterElements", {cache, expand(at, d), update}, {{"axis", axis}});
}

}  // namespace

static void register_transformer(OpSet& ops) {
  register_attention(ops);
  register_flex_attention(ops);
  register_rotary(ops);
  ops.op("TensorScatter")
      .in("past_cache")
      .in("update")
      .in_optional("write_indices", kInt64, "I")
      .out("present_cache")
      .since(24)
      .attr("axis", int64_t{-2})
      .attr("mode", std::string("linear"))
      .differentiable_inputs({0, 1})
      .defined_as(tensor_scatter);
  ops.op("SwiGLU")
      .in("A", kFloating)
      .in("B", kFloating)
      .out("Y")
      .since(28)
      .attr("alpha", 1.0)
      .defined_as([](const OpCall& c) {
        check(c.x(0).dims() == c.x(1).dims(), "[SwiGLU] A has shape {}, B has shape {}",
              c.x(0).dims(), c.x(1).dims());
        return c.x(0) * sigmoid(c.x(0) * c.attrs().f("alpha")) * c.x(1);
      });
}

const Family<OpSet> kTransformerOps("ops", "transformer", register_transformer);

}  // namespace ort
