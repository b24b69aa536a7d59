// Attention as ops of files ask for it: as ort::Attention where that says it, else by its stages.
#include <cmath>
#include <limits>

#include "csrc/ops/transformer/attention.h"

namespace ort {
namespace {

Value minus_infinity(Value like) {
  return number(-std::numeric_limits<double>::infinity(), like);
}

// Halves in float32, which is no less than they ask for.
DType scores_dtype(DType dtype) {
  return is_half(dtype) ? DType::f32 : dtype;
}

// The scale as a number; q is divided where the size of a head is known only to a run.
double scaled(Value& q, std::optional<double> given) {
  if (given) return *given;
  if (const auto size = q.dim(3).value()) return 1.0 / std::sqrt(static_cast<double>(*size));
  const DType dtype = q.dtype(), wide = scores_dtype(dtype);
  const Value root = sqrt(cast(q.graph->size(q.dim(3)), wide));
  q = cast(cast(q, wide) / root, dtype);
  return 1.0;
}

Value in_four_axes(Value mask) {
  std::vector<int64_t> axes;
  for (size_t i = mask.dims().size(); i < 4; ++i) axes.push_back(static_cast<int64_t>(axes.size()));
  return axes.empty() ? mask : unsqueeze(mask, axes);
}

Value as_one_op(const Heads& heads, const Scores& s, double scale) {
  Value mask = s.added ? cast(s.added, heads.q.dtype()) : s.seen;
  if (s.added && s.seen) mask = where(s.seen, mask, minus_infinity(mask));
  if (mask) mask = in_four_axes(mask);
  const Value v = cast(heads.v, heads.q.dtype());
  return heads.q.graph->emit1("ort::Attention", {heads.q, heads.k, v, mask},
                              {{"scale", scale}, {"causal", int64_t{s.causal}}});
}

// Shares with one more score in their sum.
Value softmax_with_sink(Value scores, Value sink) {
  const Value each = reshape(cast(sink, scores.dtype()), {1, sink.dim(0), 1, 1});
  const Value top = maximum(reduce_max(scores, {-1}), each);
  const Value e = exp(scores - top);
  return e / (reduce_sum(e, {-1}) + exp(each - top));
}

Attended by_stages(const Heads& heads, const Scores& s, double scale) {
  const DType dtype = heads.q.dtype(), wide = scores_dtype(dtype);
  const Dim count = heads.q.dim(1);
  const Value q = cast(heads.q, wide), k = cast(repeat_heads(heads.k, count), wide);
  const Value v = cast(repeat_heads(heads.v, count), wide);
  const Value raw = matmul(q, swap_last(k)) * scale;
  const Value capped = s.cap > 0.0 ? tanh(raw / s.cap) * s.cap : raw;
  Value masked = s.added ? capped + cast(s.added, wide) : capped;
  const Value seen = s.causal ? both(s.seen, causal_mask(*q.graph, q.dim(2), k.dim(2))) : s.seen;
  if (seen) masked = where(seen, masked, minus_infinity(masked));
  Value asked = cast(masked, s.precision.value_or(wide));
  if (s.change_scores) asked = s.change_scores(asked);
  Value shares = s.sink ? softmax_with_sink(asked, s.sink) : masked_softmax(asked).y;
  if (s.change_shares) shares = s.change_shares(shares);
  shares = cast(shares, wide);
  return {cast(matmul(shares, v), dtype), cast(raw, dtype), cast(capped, dtype),
          cast(masked, dtype), cast(shares, dtype)};
}

}  // namespace

Value not_above(Value a, Value b) {
  return logical_not(a > b);
}

Value both(Value a, Value b) {
  return a && b ? logical_and(a, b) : a ? a : b;
}

Value split_heads(Value x, const Dim& heads) {
  const Dims d = x.dims();
  check(d.size() == 3, "an operand has shape {}, expected [B, T, {} D]", d, heads);
  check(!heads.value() || *heads.value() > 0, "the number of heads is {}", heads);
  return transpose(reshape(x, {d[0], d[1], heads, floor_div(d[2], heads)}), {0, 2, 1, 3});
}

Value join_heads(Value y) {
  const Dims d = y.dims();
  return reshape(transpose(y, {0, 2, 1, 3}), {d[0], d[2], d[1] * d[3]});
}

Attended attend(Heads heads, const Scores& s, bool asks_stages) {
  const double scale = scaled(heads.q, s.scale);
  const DType dtype = heads.q.dtype();
  const bool other_precision =
      s.precision && *s.precision != dtype && *s.precision != scores_dtype(dtype);
  const bool stages =
      asks_stages || s.cap > 0.0 || s.sink || other_precision || s.change_scores || s.change_shares;
  if (stages) return by_stages(heads, s, scale);
  return {as_one_op(heads, s, scale), {}, {}, {}, {}};
}

}  // namespace ort
