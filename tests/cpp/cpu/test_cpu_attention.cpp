// Attention and cross entropy of the CPU provider: against their definitions and loops in double.
#include <cmath>

#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

Tensor key_tensor(uint64_t key) {
  Tensor tensor = Tensor::empty(DType::u64, {1});
  *tensor.as<uint64_t>() = key;
  return tensor;
}

struct Case {
  int64_t B, H, Hk, T, S, D, Dv;
  bool causal;
  int mask;  // 0: none, 1: bool [B, 1, 1, S], 2: float [T, S], 3: bool with a whole row masked
  double dropout;
  int64_t heads_axis = 1;
};

Tensor mask_of(const Case& c) {
  if (c.mask == 2) return random_tensor({c.T, c.S}, 9);
  const Sizes sizes = c.mask == 1 ? Sizes{c.B, 1, 1, c.S} : Sizes{c.B, 1, c.T, c.S};
  Tensor mask = Tensor::empty(DType::boolean, sizes);
  for (int64_t i = 0; i < mask.count(); ++i)
    mask.as<bool>()[i] = c.mask == 1 ? i % 3 != 1 : i / c.S % 4 != 0 && i % 5 != 2;
  return mask;
}

void expect_same(const CpuRun& run, const std::vector<Value>& got, const std::vector<Value>& want) {
  for (size_t o = 0; o < got.size(); ++o) {
    const Tensor &a = run[got[o]], &b = run[want[o]];
    ASSERT_EQ(a.count(), b.count());
    for (int64_t i = 0; i < a.count(); ++i) {
      const float x = a.as<float>()[i], y = b.as<float>()[i];
      if (x == y) continue;  // also -inf
      ASSERT_NEAR(x, y, 3e-5 * (1 + std::fabs(y))) << "output " << o << " at " << i;
    }
  }
}

// The kernel and the expanded definition in one graph, on the same inputs.
TEST(CpuAttention, MatchesItsDefinition) {
  for (const Case& c : std::vector<Case>{{2, 3, 3, 5, 7, 8, 8, false, 0, 0},
                                         {2, 4, 2, 6, 6, 8, 4, true, 0, 0},
                                         {2, 2, 2, 5, 7, 8, 8, false, 1, 0.25},
                                         {1, 2, 1, 9, 9, 16, 16, true, 2, 0.5},
                                         {2, 2, 2, 200, 40, 16, 16, false, 3, 0},
                                         {1, 4, 4, 130, 600, 8, 8, true, 0, 0.1},
                                         {2, 4, 2, 6, 6, 8, 4, true, 2, 0.2, 2},
                                         {2, 2, 1, 200, 40, 16, 16, false, 3, 0, 2}}) {
    Graph g(default_ops());
    const auto sizes = [&](int64_t heads, int64_t rows, int64_t width) {
      return c.heads_axis == 1 ? Sizes{c.B, heads, rows, width} : Sizes{c.B, rows, heads, width};
    };
    const Sizes qs = sizes(c.H, c.T, c.D), ks = sizes(c.Hk, c.S, c.D), vs = sizes(c.Hk, c.S, c.Dv);
    const Sizes ys = sizes(c.H, c.T, c.Dv);
    const Value q = g.input("q", f32(qs)), k = g.input("k", f32(ks)), v = g.input("v", f32(vs));
    const Value dy = g.input("dy", f32(ys));
    const Value key = g.input("key", Type::tensor(DType::u64, Dims{1}));
    Value mask;
    std::map<std::string, Tensor> feed{{"q", random_tensor(qs, 1)},
                                       {"k", random_tensor(ks, 2)},
                                       {"v", random_tensor(vs, 3)},
                                       {"dy", random_tensor(ys, 4)},
                                       {"key", key_tensor(77)}};
    if (c.mask != 0) {
      feed["mask"] = mask_of(c);
      mask = g.input("mask", Type::tensor(feed["mask"].dtype, fixed(feed["mask"].sizes)));
    }
    const Attrs attrs{{"scale", 0.3},
                      {"heads_axis", c.heads_axis},
                      {"causal", int64_t{c.causal}},
                      {"dropout", c.dropout},
                      {"counter", int64_t{5}}};
    const std::vector<Value> in{q, k, v, mask, key};
    const auto out = g.emit("ort::Attention", in, attrs);
    const std::vector<Value> back{dy, q, k, v, mask, key, out[0], out[1]};
    const bool wants_mask = c.mask == 2;
    const auto grads = g.emit("ort::AttentionGrad", back, attrs, wants_mask ? 4 : 3);
    const auto expanded =
        g.ops().get("ort::Attention").definition()(OpCall(g, in, out[0].producer()->attrs, 2));
    const auto expanded_grads =
        g.ops()
            .get("ort::AttentionGrad")
            .definition()(OpCall(g, back, out[0].producer()->attrs, grads.size()));
    std::vector<Value> got = out, want = expanded;
    got.insert(got.end(), grads.begin(), grads.end());
    want.insert(want.end(), expanded_grads.begin(), expanded_grads.end());
    for (const Value value : got) g.output(value, "got");
    for (const Value value : want) g.output(value, "want");
    expect_same(run_on_cpu(g, feed), got, want);
  }
}

struct LossCase {
  Sizes logits;
  bool weighted;
  std::string reduction;
  double smoothing;
};

// Cross entropy by its formula, in double.
struct LossOracle {
  const LossCase& c;
  const Tensor &x, &target, &weight;
  int64_t C = c.logits[1], inner = element_count(c.logits) / C / c.logits[0];
  double w(int64_t i) const { return c.weighted ? double(weight.as<float>()[i]) : 1.0; }
  double logit(int64_t row, int64_t i) const { return x.as<float>()[at(row, i)]; }
  int64_t at(int64_t row, int64_t i) const {
    return row / inner * C * inner + i * inner + row % inner;
  }
  double all() const {
    double sum = 0;
    for (int64_t i = 0; i < C; ++i) sum += w(i);
    return sum;
  }
  double lse(int64_t row) const {
    double sum = 0;
    for (int64_t i = 0; i < C; ++i) sum += std::exp(logit(row, i));
    return std::log(sum);
  }
  double loss(int64_t row) const {
    const int64_t t = target.as<int64_t>()[row];
    if (t < 0) return 0;
    double smooth = 0;
    for (int64_t i = 0; i < C; ++i) smooth += w(i) * (lse(row) - logit(row, i));
    return (1 - c.smoothing) * w(t) * (lse(row) - logit(row, t)) + c.smoothing / C * smooth;
  }
  double gradient(int64_t row, int64_t i, double d) const {
    const int64_t t = target.as<int64_t>()[row];
    if (t < 0) return 0;
    const double p = std::exp(logit(row, i) - lse(row));
    return d * ((1 - c.smoothing) * w(t) * (p - (i == t)) + c.smoothing / C * (all() * p - w(i)));
  }
};

void check_loss(const LossCase& c, const CpuRun& run, const std::vector<Value>& out,
                const LossOracle& oracle, const Tensor& d, int64_t rows) {
  const bool none = c.reduction == "none", mean = c.reduction == "mean";
  double sum = 0, total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t t = oracle.target.as<int64_t>()[row];
    sum += oracle.loss(row);
    total += t < 0 ? 0 : oracle.w(t);
    const float* parts = run[out[1]].as<float>() + 2 * row;  // the maximum, the sum behind it
    EXPECT_NEAR(parts[0] + std::log(parts[1]), oracle.lse(row), 1e-5);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const double scale = none ? d.as<float>()[row] : d.as<float>()[0] / (mean ? total : 1.0);
    const double want = none ? oracle.loss(row) : mean ? sum / total : sum;
    EXPECT_NEAR(run[out[0]].as<float>()[none ? row : 0], want, 1e-4);
    for (int64_t i = 0; i < oracle.C; ++i)
      EXPECT_NEAR(run[out[2]].as<float>()[oracle.at(row, i)], oracle.gradient(row, i, scale), 1e-6);
  }
}

TEST(CpuLoss, CrossEntropyAndGradient) {
  for (const LossCase& c : std::vector<LossCase>{{{6, 5}, false, "mean", 0},
                                                 {{6, 5}, true, "sum", 0.1},
                                                 {{4, 7, 3, 2}, true, "mean", 0.2},
                                                 {{4, 7, 3}, false, "none", 0},
                                                 {{300, 40}, false, "mean", 0}}) {
    Graph g(default_ops());
    Sizes ts = c.logits;
    ts.erase(ts.begin() + 1);
    const int64_t rows = element_count(ts), C = c.logits[1];
    const Sizes ds = c.reduction == "none" ? ts : Sizes{};
    const Value x = g.input("x", f32(c.logits)), d = g.input("d", f32(ds));
    const Value target = g.input("t", Type::tensor(DType::i64, fixed(ts)));
    const Value weight = c.weighted ? g.input("w", f32({C})) : Value{};
    const Attrs attrs{{"reduction", c.reduction}, {"label_smoothing", c.smoothing}};
    std::vector<Value> out =
        g.emit("ort::CrossEntropy", std::vector<Value>{x, target, weight}, attrs);
    const std::vector<Value> back{d, x, target, out[1], weight};
    out.push_back(g.emit("ort::CrossEntropyGrad", back, attrs)[0]);
    for (const Value v : out) g.output(v, "out");
    const Tensor xt = random_tensor(c.logits, 1, 2.0f), dt = random_tensor(ds, 3);
    Tensor wt = random_tensor({C}, 2), tt = Tensor::empty(DType::i64, ts);
    for (int64_t i = 0; i < C; ++i) wt.as<float>()[i] = std::fabs(wt.as<float>()[i]) + 0.1f;
    for (int64_t i = 0; i < rows; ++i) tt.as<int64_t>()[i] = i % 4 == 3 ? -100 : i % C;
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"t", tt}, {"w", wt}, {"d", dt}});
    check_loss(c, run, out, LossOracle{c, xt, tt, wt}, dt, rows);
  }
}

TEST(CpuLoss, TargetOutOfRangeIsAnError) {
  Graph g(default_ops());
  const std::vector<Value> in{g.input("x", f32({2, 3})),
                              g.input("t", Type::tensor(DType::i64, Dims{2}))};
  g.output(g.emit("ort::CrossEntropy", in)[0], "loss");
  try {
    run_on_cpu(g, {{"x", random_tensor({2, 3}, 1)}, {"t", Tensor::of({1, 3})}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "[ort::CrossEntropy] target 3 is out of range, expected 0 to 2 or ignore_index -100");
  }
}

}  // namespace
}  // namespace ort
