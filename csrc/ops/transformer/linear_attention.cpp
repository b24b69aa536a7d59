// Layers that carry a state from one step to the next: a causal convolution, and attention without
// a softmax.
#include <cmath>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// --- CausalConvWithState (ai.onnx 27) -----------------------------------------------------------

// x [B, C, L + K - 1] with a kernel [C, 1, K] for each channel. Groups are an attribute, so
// channels whose number a run tells are multiplied with columns of K values instead.
Value by_channel(Value x, Value w, Value bias) {
  Graph& g = *x.graph;
  const Dims d = w.dims();
  if (const auto channels = d[0].value())
    return g.emit1("Conv", {x, w, bias}, {{"group", *channels}});
  const Value columns = g.emit1("ort::Im2Col", {x, g.sizes({d[2]})});
  const Value rows = reshape(columns, {x.dim(0), x.dim(1), d[2], columns.dim(2)});
  const Value y = squeeze(matmul(reshape(w, {x.dim(1), 1, d[2]}), rows), {2});
  return bias ? y + unsqueeze(bias, {1}) : y;
}

// Each channel of x [B, C, L] behind its last K - 1 values, a state, meets a kernel of its own.
Outputs causal_conv(const OpCall& c) {
  const Value x = c.x(0), w = c.x(1);
  const Dims d = x.dims();
  check(d.size() == 3 && w.rank() == 3,
        "[CausalConvWithState] input has shape {}, weight has shape {}, expected [B, C, L] and "
        "[C, 1, K]",
        d, w.dims());
  check(may_be_equal(w.dim(1), 1), "[CausalConvWithState] weight has shape {}, expected [C, 1, K]",
        w.dims());
  const std::string& activation = c.attrs().s("activation");
  const bool silu = activation == "silu" || activation == "swish";
  check(silu || activation == "none",
        "[CausalConvWithState] activation is '{}', expected none, silu or swish", activation);
  const Dim kept = w.dim(2) - 1;
  const Dims state{d[0], d[1], kept};
  check(!c.has(3) || (c.x(3).rank() == 3 && may_be_equal(c.x(3).dim(2), kept)),
        "[CausalConvWithState] past_state has shape {}, expected {}",
        c.has(3) ? c.x(3).dims() : Dims{}, state);
  const Value before = c.has(3) ? c.x(3) : full(c.graph(), state, 0.0, x.dtype());
  const Value all = concat({before, x}, 2);
  const Value y = reshape(by_channel(all, w, c.x(2)), d);
  return {silu ? unary("Swish", y) : y, slice(all, 2, d[2], d[2] + kept)};
}

// --- LinearAttention (ai.onnx 27) ---------------------------------------------------------------

enum LinearInput : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

// A call with its heads apart: H states of dk x dv numbers, each read by `group` queries.
struct LinearParts {
  Dim batch, steps, dk, dv;
  int64_t heads, group;
  bool decays, corrects;  // as the update rule says
  Value q, k, v, decay, beta, state;
};

void check_input(const OpCall& c, size_t input, const char* name, bool wanted) {
  check(c.has(input) == wanted, "[LinearAttention] update_rule is '{}', which takes {}{}",
        c.attrs().s("update_rule"), wanted ? "" : "no ", name);
  check(!wanted || c.x(input).rank() == 3, "[LinearAttention] {} has shape {}, expected rank 3",
        name, wanted ? c.x(input).dims() : Dims{});
}

LinearParts linear_parts(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const std::string& rule = attrs.s("update_rule");
  LinearParts p;
  p.decays = rule == "gated" || rule == "gated_delta";
  p.corrects = rule == "delta" || rule == "gated_delta";
  check(p.decays || p.corrects || rule == "linear",
        "[LinearAttention] update_rule is '{}', expected linear, gated, delta or gated_delta",
        rule);
  const int64_t queries = attrs.i("q_num_heads");
  p.heads = attrs.i("kv_num_heads");
  check(p.heads > 0 && queries > 0 && queries % p.heads == 0,
        "[LinearAttention] q_num_heads is {}, expected a multiple of kv_num_heads, {}", queries,
        p.heads);
  p.group = queries / p.heads;
  for (const size_t i : {kQuery, kKey, kValue})
    check(c.x(i).rank() == 3, "[LinearAttention] input {} has shape {}, expected [B, T, H D]", i,
          c.x(i).dims());
  check_input(c, kDecay, "decay", p.decays);
  check_input(c, kBeta, "beta", p.corrects);
  p.batch = c.x(kQuery).dim(0);
  p.steps = c.x(kQuery).dim(1);
  p.dk = floor_div(c.x(kQuery).dim(2), queries);
  p.dv = floor_div(c.x(kValue).dim(2), p.heads);
  return p;
}

// x stretched to sizes of which a run may tell some.
Value stretched(Value x, const Dims& dims) {
  return reshape(expand(x, dims), dims);
}

// The operands in the dtype that states are summed in, [B, T, H, ..].
void split_heads(const OpCall& c, LinearParts& p) {
  const DType wide = widen(c.x(kQuery), DType::f32).dtype();
  const auto split = [&](size_t input, Dims last) {
    last.insert(last.begin(), {p.batch, p.steps});
    return reshape(cast(c.x(input), wide), last);
  };
  p.q = split(kQuery, {p.heads, p.group, p.dk});
  p.k = split(kKey, {p.heads, p.dk, 1});
  p.v = split(kValue, {p.heads, 1, p.dv});
  if (p.decays) {
    const Dim columns = c.x(kDecay).dim(2);
    const Value decay = exp(split(kDecay, {p.heads, floor_div(columns, p.heads), 1}));
    // One for each state or for each of its rows: which, a run may tell.
    p.decay = columns.value() ? decay : stretched(decay, {p.batch, p.steps, p.heads, p.dk, 1});
  }
  if (p.corrects) {
    const Dim columns = c.x(kBeta).dim(2);
    check(!columns.value() || columns.is(1) || columns.is(p.heads),
          "[LinearAttention] beta has shape {}, expected {} or 1 columns", c.x(kBeta).dims(),
          p.heads);
    p.beta = split(kBeta, {columns, 1, 1});
  }
  const Dims state{p.batch, p.heads, p.dk, p.dv};
  check(!c.has(kPast) || c.x(kPast).rank() == 4,
        "[LinearAttention] past_state has shape {}, expected {}",
        c.has(kPast) ? c.x(kPast).dims() : Dims{}, state);
  p.state =
      c.has(kPast) ? stretched(cast(c.x(kPast), wide), state) : full(c.graph(), state, 0.0, wide);
}

// One step: the state fades, is corrected by what it already tells of the key, and is read.
std::unique_ptr<Graph> linear_step(const LinearParts& p, Graph& around,
                                   const std::vector<Value>& in) {
  auto body = around.new_body();
  std::vector<Value> at;
  for (size_t i = 0; i < in.size(); ++i) {
    Dims dims = in[i].dims();
    if (i > 0) dims.erase(dims.begin() + 1);
    at.push_back(body->input(format("in{}", i), Type::tensor(in[i].dtype(), dims)));
  }
  Value state = at[0], v = at[3];
  const Value q = at[1], k = at[2];
  size_t next = 4;
  if (p.decays) state = state * at[next++];
  if (p.corrects) v = at[next] * (v - matmul(transpose(k, {0, 1, 3, 2}), state));
  state = state + k * v;
  body->output(state, "state");
  body->output(matmul(q, state), "read");
  return body;
}

Outputs linear_attention(const OpCall& c) {
  LinearParts p = linear_parts(c);
  split_heads(c, p);
  Graph& g = c.graph();
  std::vector<Value> in{p.state, p.q, p.k, p.v};
  if (p.decays) in.push_back(p.decay);
  if (p.corrects) in.push_back(p.beta);
  const auto scanned = static_cast<int64_t>(in.size()) - 1;
  Bodies bodies;
  bodies.emplace_back("body", linear_step(p, g, in));
  const Attrs attrs{{"num_scan_inputs", scanned},
                    {"scan_input_axes", std::vector<int64_t>(in.size() - 1, 1)},
                    {"scan_output_axes", std::vector<int64_t>{1}}};
  const auto made = g.emit("Scan", in, attrs, 2, std::move(bodies));
  Value y = made[1];
  const double scale = c.attrs().f("scale");
  if (scale != 0.0)
    y = y * scale;
  else if (const auto dk = p.dk.value())
    y = y / std::sqrt(static_cast<double>(*dk));
  else
    y = y / sqrt(cast(g.size(p.dk), y.dtype()));
  y = reshape(y, {p.batch, p.steps, p.dv * (p.heads * p.group)});
  const DType dtype = c.x(kQuery).dtype();
  return {cast(y, dtype), cast(made[0], c.has(kPast) ? c.x(kPast).dtype() : dtype)};
}

}  // namespace

static void register_linear_attention(OpSet& ops) {
  ops.op("CausalConvWithState")
      .in("input", kFloating)
      .in("weight", kFloating)
      .in_optional("bias", kFloating)
      .in_optional("past_state", kFloating)
      .out("output")
      .out("present_state")
      .since(27)
      .attr("activation", std::string("none"))
      .defined_as(causal_conv);
  ops.op("LinearAttention")
      .in("query", kFloating)
      .in("key", kFloating)
      .in("value", kFloating)
      .in_optional("past_state", kFloating, "S")
      .in_optional("decay", kFloating)
      .in_optional("beta", kFloating)
      .out("output")
      .out("present_state", kFloating, "S")
      .since(27)
      .attr("chunk_size", int64_t{64})
      .attr_required("kv_num_heads")
      .attr_required("q_num_heads")
      .attr("scale", 0.0)
      .attr("update_rule", std::string("gated_delta"))
      .defined_as(linear_attention);
}

const Family<OpSet> kLinearAttentionOps("ops", "linear_attention", register_linear_attention);

}  // namespace ort
