// Scaled dot-product attention as one op, and its gradient. q, k, v and y are [B, H, T, D], or
// [B, T, H, D] with heads_axis = 2, as a projection leaves them: no transposes then.
#include <limits>

#include "csrc/ops/transformer/attention.h"

namespace ort {

MaskedSoftmax masked_softmax(Value scores) {
  const Value lowest = number(-std::numeric_limits<double>::infinity(), scores);
  const Value top = reduce_max(scores, {-1});
  const Value safe = where(equal(top, lowest), number(0.0, top), top);
  const Value e = exp(scores - safe);
  const Value sum = reduce_sum(e, {-1});
  const Value one = number(1.0, sum);
  return {e / where(equal(sum, number(0.0, sum)), one, sum), safe, sum};
}

Value repeat_heads(Value kv, const Dim& heads) {
  const Dims d = kv.dims();
  if (d[1] == heads) return kv;
  const Dim times = floor_div(heads, d[1]);
  return reshape(expand(unsqueeze(kv, {2}), {d[0], d[1], times, d[2], d[3]}),
                 {d[0], heads, d[2], d[3]});
}

Value causal_mask(Graph& g, const Dim& t, const Dim& s) {
  const Value ones = full(g, {t, s}, 1.0, DType::boolean);
  return g.emit1("Trilu", {ones, Value{}}, {{"upper", int64_t{0}}});
}

namespace {

void infer_attention(InferContext& c) {
  const int64_t axis = c.attrs().i("heads_axis");
  c.require(axis == 1 || axis == 2, "heads_axis is {}, expected 1 or 2", axis);
  for (size_t i = 0; i < 3; ++i)
    c.require(!c.ranked(i) || c.rank(i) == 4, "{} has shape {}, expected {}",
              c.node().schema->inputs()[i].name, c.ranked(i) ? c.dims(i) : Dims{},
              axis == 1 ? "[B, H, T, D]" : "[B, T, H, D]");
  expect_key(c, 4);
  if (!c.ranked(0) || !c.ranked(1) || !c.ranked(2)) return c.out(0, c.dtype(), std::nullopt);
  const Dims &q = c.dims(0), &k = c.dims(1), &v = c.dims(2);
  const auto h = static_cast<size_t>(axis), t = 3 - h;
  const bool heads = !q[h].value() || !k[h].value() || *q[h].value() % *k[h].value() == 0;
  c.require(heads, "q has {} heads, k has {}, expected a multiple", q[h], k[h]);
  c.require(!(q[3].value() && k[3].value()) || q[3] == k[3],
            "q has shape {}, k has shape {}: sizes of a head differ", q, k);
  c.assume(divisible(q[h], k[h]), "heads");
  c.assume_equal({q[0], q[0], q[3], k[h], k[t]}, {k[0], v[0], k[3], v[h], v[t]},
                 "sizes of q, k and v");
  expect_stretches(c, 3, {q[0], q[h], q[t], k[t]});
  c.out(0, c.dtype(), Dims{q[0], q[1], q[2], v[3]});
  // Of halves in float32: the gradient makes probabilities from it.
  c.out(1, c.node().schema->compute_dtype(c.node()), Dims{q[0], q[h], q[t]});
}

// Operations of one product over queries and keys; `q`: the index of the queries.
double products(const Sized& node, size_t q) {
  const int64_t steps = 3 - node.attrs().i("heads_axis");
  return node.ranked(q + 1) ? 2 * node.x(q) * node.size(q + 1, steps) : 2 * node.x(q);
}

OpSchema& attention_attrs(OpSchema& schema) {
  return schema.attr_required("scale")
      .attr("heads_axis", int64_t{1})
      .attr("causal", int64_t{0})
      .attr("dropout", 0.0)
      .attr("counter", int64_t{0})
      .computes_in(DType::f32);
}

// Swaps [B, H, T, D] and [B, T, H, D] where the call's heads are not at axis 1.
Value heads_first(const OpCall& c, Value x) {
  return c.attrs().i("heads_axis") == 1 ? x : transpose(x, {0, 2, 1, 3});
}

// softmax(q k^T scale + mask) v; a row whose every key is masked gives zeros, as torch does.
Outputs attention(const OpCall& c) {
  Graph& g = c.graph();
  const Value q = heads_first(c, c.x(0));
  const Value k = repeat_heads(heads_first(c, c.x(1)), q.dim(1));
  const Value v = repeat_heads(heads_first(c, c.x(2)), q.dim(1));
  Value scores = matmul(q, swap_last(k)) * c.attrs().f("scale");
  const Value lowest = number(-std::numeric_limits<double>::infinity(), scores);
  if (c.attrs().i("causal")) scores = where(causal_mask(g, q.dim(2), k.dim(2)), scores, lowest);
  if (c.has(3))
    scores = c.x(3).dtype() == DType::boolean ? where(c.x(3), scores, lowest) : scores + c.x(3);
  const MaskedSoftmax softmax = masked_softmax(scores);
  Value p = softmax.y;
  if (c.attrs().f("dropout") > 0.0)
    p = g.emit1("ort::Dropout", {p, c.x(4)},
                {{"ratio", c.attrs().f("dropout")}, {"counter", c.attrs().i("counter")}});
  Outputs out{heads_first(c, matmul(p, v))};
  if (c.outputs() > 1) out.push_back(squeeze(log(softmax.sum) + softmax.top, {-1}));
  return out;
}

Outputs attention_gradient(const Backward& b) {
  check(!b.dy(1), "[ort::Attention] no gradient flows through log_sum_exp");
  Graph& g = b.graph();
  const auto or_none = [&](size_t i) { return b.has(i) ? b.x(i) : Value{}; };
  const std::vector<Value> in{b.dy(),     b.x(0),     b.x(1), b.x(2),
                              or_none(3), or_none(4), b.y(0), b.y(1)};
  Outputs grads = g.emit("ort::AttentionGrad", in, b.attrs(), b.needs(3) ? 4 : 3);
  if (b.needs(3)) grads[3] = sum_to(grads[3], b.x(3).dims());
  return grads;
}

// The same mathematics from q, k, v and the row sums: p is made again, never stored.
Outputs attention_grad(const OpCall& c) {
  Graph& g = c.graph();
  const Value dy = heads_first(c, c.x(0)), q = heads_first(c, c.x(1));
  const Dim heads = q.dim(1);
  const Value k = repeat_heads(heads_first(c, c.x(2)), heads);
  const Value v = repeat_heads(heads_first(c, c.x(3)), heads);
  const double scale = c.attrs().f("scale");
  Value scores = matmul(q, swap_last(k)) * scale;
  const Value lowest = number(-std::numeric_limits<double>::infinity(), scores);
  if (c.attrs().i("causal")) scores = where(causal_mask(g, q.dim(2), k.dim(2)), scores, lowest);
  if (c.has(4))
    scores = c.x(4).dtype() == DType::boolean ? where(c.x(4), scores, lowest) : scores + c.x(4);
  const Value lse = unsqueeze(c.x(7), {-1});
  const Value weights = exp(scores - where(equal(lse, lowest), number(0.0, lse), lse));
  // Beside a large maximum lse has lost the logarithm of their sum.
  const Value sum = reduce_sum(weights, {-1}), none = number(0.0, sum);
  const Value p = weights / where(equal(sum, none), number(1.0, sum), sum);
  const auto drop = [&](Value x) {
    if (c.attrs().f("dropout") <= 0.0) return x;
    return g.emit1("ort::Dropout", {x, c.x(5)},
                   {{"ratio", c.attrs().f("dropout")}, {"counter", c.attrs().i("counter")}});
  };
  const Value dv = matmul(swap_last(drop(p)), dy);
  const Value dp = drop(matmul(dy, swap_last(v)));
  const Value ds = p * (dp - reduce_sum(dy * heads_first(c, c.x(6)), {-1}));
  const Value dq = matmul(ds, k) * scale, dk = matmul(swap_last(ds), q) * scale;
  // Shared heads: sum over the group.
  const auto ungroup = [&](Value d, const Dim& shared) {
    if (shared == heads) return d;
    const Dims to = d.dims();
    return reduce_sum(reshape(d, {to[0], shared, floor_div(heads, shared), to[2], to[3]}), {2},
                      false);
  };
  const Dim shared = c.x(2).dim(c.attrs().i("heads_axis"));
  Outputs out;
  for (const Value d : {dq, ungroup(dk, shared), ungroup(dv, shared)})
    out.push_back(heads_first(c, d));
  if (c.outputs() > 3) out.push_back(ds);
  return out;
}

void infer_attention_grad(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) same_dims(c, i, i + 1);
  expect_key(c, 5);
  if (!c.ranked(1) || !c.ranked(2)) return;
  const auto h = static_cast<size_t>(c.attrs().i("heads_axis")), t = 3 - h;
  if (c.ranked(3)) {
    const Dims &q = c.dims(1), &k = c.dims(2), &v = c.dims(3);
    c.assume_equal({q[0], q[0], q[3], k[h], k[t]}, {k[0], v[0], k[3], v[h], v[t]},
                   "sizes of q, k and v");
    for (const size_t i : {0, 6}) expect_dims(c, i, {q[0], q[1], q[2], v[3]});
    expect_dims(c, 7, {q[0], q[h], q[t]});
    expect_stretches(c, 4, {q[0], q[h], q[t], k[t]});
  }
  c.out(3, c.dtype(), Dims{c.dims(1)[0], c.dims(1)[h], c.dims(1)[t], c.dims(2)[t]});
}

}  // namespace

static void register_fused_attention(OpSet& ops) {
  attention_attrs(ops.op("ort::Attention")
                      .in("q", kFloating)
                      .in("k", kFloating)
                      .in("v", kFloating)
                      .in_optional("mask", kFloating | kBool, "M")
                      .in_optional("key", bit(DType::u64), "K")
                      .host()
                      .out("y")
                      .out("log_sum_exp"))
      .shape(infer_attention)
      .cost([](const Sized& node) { return products(node, 0) * 2; })
      .differentiable_inputs({0, 1, 2, 3})
      .defined_as(attention)
      .gradient(attention_gradient);
  attention_attrs(ops.op("ort::AttentionGrad")
                      .in("dy", kFloating)
                      .in("q", kFloating)
                      .in("k", kFloating)
                      .in("v", kFloating)
                      .in_optional("mask", kFloating | kBool, "M")
                      .in_optional("key", bit(DType::u64), "K")
                      .host()
                      .in("y", kFloating)
                      .in("log_sum_exp", kFloating, "S")
                      .out("dq")
                      .out("dk")
                      .out("dv")
                      .out("dmask"))
      .shape(infer_attention_grad)
      .cost([](const Sized& node) { return products(node, 1) * 5; })
      .defined_as(attention_grad);
}

const Family<OpSet> kAttentionOps("ops", "attention", register_fused_attention);

}  // namespace ort
