// The layers of transformers as ONNX has them, each by its parts: Attention with masks, windows and
// a cache, rotary positions, gates.
#include <cmath>
#include <limits>

#include "csrc/ops/transformer/attention.h"

namespace ort {
namespace {

Value below_all(Value like) {
  return number(-std::numeric_limits<double>::infinity(), like);
}

Value both(Value a, Value b) {
  return a && b ? logical_and(a, b) : a ? a : b;
}

Value not_above(Value a, Value b) {
  return logical_not(a > b);
}

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
  const Dim h = std::get<int64_t>(*heads);
  return transpose(reshape(x, {d[0], d[1], h, floor_div(d[2], h)}), {0, 2, 1, 3});
}

// A call with its heads apart and the cache before the keys; T queries see S keys.
struct AttentionParts {
  Value q, k, v;
  Dim past = 0;
  double scale = 1.0;
  bool flat = false;  // operands and result are [B, T, H D]
  Dim queries() const { return q.dim(2); }
  Dim keys() const { return k.dim(2); }
};

AttentionParts parts_of(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  AttentionParts parts{in_heads(c.x(0), attrs, "q_num_heads"),
                       in_heads(c.x(1), attrs, "kv_num_heads"),
                       in_heads(c.x(2), attrs, "kv_num_heads")};
  parts.flat = c.x(0).dims().size() == 3;
  check(c.has(kPastKey) == c.has(kPastValue),
        "[Attention] past_key and past_value are given one without the other");
  check(!c.has(kPastKey) || !c.has(kValidKeys),
        "[Attention] nonpad_kv_seqlen and past_key are both given");
  if (c.has(kPastKey)) {
    parts.past = c.x(kPastKey).dim(2);
    parts.k = concat({c.x(kPastKey), parts.k}, 2);
    parts.v = concat({c.x(kPastValue), parts.v}, 2);
  }
  if (const Attr* scale = attrs.find("scale")) {
    parts.scale = std::get<double>(*scale);
  } else if (const auto size = parts.q.dim(3).value()) {
    parts.scale = 1.0 / std::sqrt(static_cast<double>(*size));
  } else {
    const DType dtype = parts.q.dtype(), wide = is_half(dtype) ? DType::f32 : dtype;
    const Value root = sqrt(cast(c.graph().size(parts.q.dim(3)), wide));
    parts.q = cast(cast(parts.q, wide) / root, dtype);
  }
  return parts;
}

// Which keys a query may see by its place; absent: all. `causal`: whether that is asked here.
Value visible(const OpCall& c, const AttentionParts& parts, bool causal) {
  Graph& g = c.graph();
  const int64_t left = c.attrs().i("left_window_size"), right = c.attrs().i("right_window_size");
  check(left >= -1 && right >= -1,
        "[Attention] the window is {} to the left and {} to the right, expected -1 or more", left,
        right);
  const Value key = positions(g, parts.keys());
  Value seen;
  Value query = unsqueeze(positions(g, parts.queries()), {1});
  if (c.has(kValidKeys)) {
    const Value valid = reshape(c.x(kValidKeys), {parts.q.dim(0), 1, 1, 1});
    query = query + (valid - g.size(parts.queries()));
    seen = valid > key;
  } else {
    query = query + g.size(parts.past);
  }
  if (causal) seen = both(seen, not_above(key, query));
  if (left >= 0) seen = both(seen, not_above(query - static_cast<double>(left), key));
  if (right >= 0) seen = both(seen, not_above(key, query + static_cast<double>(right)));
  return seen;
}

// A mask over all keys: what it does not reach is not seen.
struct AttentionMask {
  Value seen, added;
};

AttentionMask mask_of(const OpCall& c, const AttentionParts& parts) {
  if (!c.has(kMask)) return {};
  Value mask = c.x(kMask);
  AttentionMask result;
  if (const Dim reached = mask.dim(-1); reached != parts.keys()) {
    const Value key = positions(c.graph(), parts.keys());
    if (mask.dtype() != DType::boolean) result.seen = c.graph().size(reached) > key;
    mask = pad_axis(mask, -1, 0, parts.keys() - reached);
  }
  (mask.dtype() == DType::boolean ? result.seen : result.added) = mask;
  if (result.added) result.added = cast(result.added, parts.q.dtype());
  return result;
}

Value in_four_axes(Value mask) {
  std::vector<int64_t> axes;
  for (size_t i = mask.dims().size(); i < 4; ++i) axes.push_back(static_cast<int64_t>(axes.size()));
  return axes.empty() ? mask : unsqueeze(mask, axes);
}

// What scores are computed in: halves in float32, which is no less than they ask for.
DType scores_dtype(const AttentionParts& parts) {
  const DType dtype = parts.q.dtype();
  return is_half(dtype) ? DType::f32 : dtype;
}

// What the softmax is asked in where that is not what it is computed in anyway.
std::optional<DType> other_precision(const OpCall& c, const AttentionParts& parts) {
  const Attr* given = c.attrs().find("softmax_precision");
  if (!given) return std::nullopt;
  const int64_t asked = std::get<int64_t>(*given);
  check(known_dtype(asked) && (bit(static_cast<DType>(asked)) & kFloating) != 0,
        "[Attention] softmax_precision is {}, expected 1 (float32), 10 (float16), 11 (float64) or "
        "16 (bfloat16)",
        asked);
  const auto precision = static_cast<DType>(asked);
  if (precision == parts.q.dtype() || precision == scores_dtype(parts)) return std::nullopt;
  return precision;
}

// The scores at each stage are asked for, or changed between the product and the softmax.
bool needs_scores(const OpCall& c, const AttentionParts& parts) {
  return c.outputs() > 3 || c.attrs().f("softcap") > 0.0 || other_precision(c, parts);
}

// y, and the scores as attribute "qk_matmul_output_mode" asks for them.
Outputs with_scores(const OpCall& c, const AttentionParts& parts, const AttentionMask& mask) {
  const DType dtype = parts.q.dtype(), wide = scores_dtype(parts);
  const Value q = cast(parts.q, wide);
  const Value k = cast(repeat_heads(parts.k, q.dim(1)), wide);
  const Value v = cast(repeat_heads(parts.v, q.dim(1)), wide);
  const double cap = c.attrs().f("softcap"), root = std::sqrt(parts.scale);
  const Value raw = matmul(q * root, swap_last(k * root));
  const Value capped = cap > 0.0 ? tanh(raw / cap) * cap : raw;
  Value biased = mask.added ? capped + cast(mask.added, wide) : capped;
  if (mask.seen) biased = where(mask.seen, biased, below_all(biased));
  const DType precision = other_precision(c, parts).value_or(wide);
  const Value p = cast(masked_softmax(cast(biased, precision)).y, wide);
  const Value stages[] = {raw, capped, biased, p};
  const int64_t mode = c.attrs().i("qk_matmul_output_mode");
  check(mode >= 0 && mode < 4, "[Attention] qk_matmul_output_mode is {}, expected 0 to 3", mode);
  return {cast(matmul(p, v), dtype), cast(stages[mode], dtype)};
}

Value fused(const AttentionParts& parts, const AttentionMask& mask, bool causal) {
  Value both;
  if (mask.added && mask.seen)
    both = where(mask.seen, mask.added, below_all(mask.added));
  else
    both = mask.added ? mask.added : mask.seen;
  if (both) both = in_four_axes(both);
  Graph& g = *parts.q.graph;
  const Value v = cast(parts.v, parts.q.dtype());
  return g.emit1("ort::Attention", {parts.q, parts.k, v, both},
                 {{"scale", parts.scale}, {"causal", int64_t{causal}}});
}

Outputs onnx_attention(const OpCall& c) {
  const AttentionParts parts = parts_of(c);
  const bool causal = c.attrs().i("is_causal") != 0, scores = needs_scores(c, parts);
  // Queries that start with the first key: ort::Attention knows no other.
  const bool from_first = causal && !scores && !c.has(kPastKey) && !c.has(kValidKeys);
  AttentionMask mask = mask_of(c, parts);
  mask.seen = both(mask.seen, visible(c, parts, causal && !from_first));
  Outputs made = scores ? with_scores(c, parts, mask) : Outputs{fused(parts, mask, from_first)};
  Value y = made[0];
  if (parts.flat) {
    const Dims d = y.dims();
    y = reshape(transpose(y, {0, 2, 1, 3}), {d[0], d[2], d[1] * d[3]});
  }
  Outputs out{y, parts.k, parts.v};
  if (c.outputs() > 3) out.push_back(made[1]);
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
  return c.x(0).dims().size() == 4 ? y : reshape(transpose(y, {0, 2, 1, 3}), c.x(0).dims());
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

const Family<OpSet> kFamily("ops", "transformer", register_transformer);

}  // namespace ort
