// Attention and cross entropy of the CPU provider: against their definitions and loops in double.
#include <cmath>

#include "tests/cpp/cpu_run.h"

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
};

// The kernel and the expanded definition in one graph, on the same inputs.
TEST(CpuAttention, MatchesItsDefinition) {
  for (const Case& c : std::vector<Case>{{2, 3, 3, 5, 7, 8, 8, false, 0, 0},
                                         {2, 4, 2, 6, 6, 8, 4, true, 0, 0},
                                         {2, 2, 2, 5, 7, 8, 8, false, 1, 0.25},
                                         {1, 2, 1, 9, 9, 16, 16, true, 2, 0.5},
                                         {2, 2, 2, 200, 40, 16, 16, false, 3, 0},
                                         {1, 4, 4, 130, 600, 8, 8, true, 0, 0.1}}) {
    Graph g(default_ops());
    const Sizes qs{c.B, c.H, c.T, c.D}, ks{c.B, c.Hk, c.S, c.D}, vs{c.B, c.Hk, c.S, c.Dv};
    const Sizes ys{c.B, c.H, c.T, c.Dv};
    const Value q = g.input("q", f32(qs)), k = g.input("k", f32(ks)), v = g.input("v", f32(vs));
    const Value dy = g.input("dy", f32(ys));
    const Value key = g.input("key", Type::tensor(DType::u64, Dims{1}));
    Value mask;
    Tensor mask_tensor;
    if (c.mask == 2) {
      mask = g.input("mask", f32({c.T, c.S}));
      mask_tensor = random_tensor({c.T, c.S}, 9);
    } else if (c.mask != 0) {
      const Sizes ms = c.mask == 1 ? Sizes{c.B, 1, 1, c.S} : Sizes{c.B, 1, c.T, c.S};
      mask = g.input("mask", Type::tensor(DType::boolean, fixed(ms)));
      mask_tensor = Tensor::empty(DType::boolean, ms);
      for (int64_t i = 0; i < mask_tensor.count(); ++i)
        mask_tensor.as<bool>()[i] = c.mask == 1 ? i % 3 != 1 : i / c.S % 4 != 0 && i % 5 != 2;
    }
    const Attrs attrs{{"scale", 0.3}, {"causal", int64_t{c.causal}}, {"dropout", c.dropout},
                      {"counter", int64_t{5}}};
    const std::vector<Value> in{q, k, v, mask, key};
    const auto out = g.emit("ort::Attention", in, attrs);
    const std::vector<Value> back{dy, q, k, v, mask, key, out[0], out[1]};
    const bool wants_mask = c.mask == 2;
    const auto grads = g.emit("ort::AttentionGrad", back, attrs, wants_mask ? 4 : 3);
    const auto expanded = g.ops().get("ort::Attention").definition()(
        Call(g, in, out[0].producer()->attrs, 2));
    const auto expanded_grads = g.ops().get("ort::AttentionGrad").definition()(
        Call(g, back, out[0].producer()->attrs, grads.size()));
    std::vector<Value> got = out, want = expanded;
    got.insert(got.end(), grads.begin(), grads.end());
    want.insert(want.end(), expanded_grads.begin(), expanded_grads.end());
    for (const Value value : got) g.output(value, "got");
    for (const Value value : want) g.output(value, "want");
    std::map<std::string, Tensor> feed{{"q", random_tensor(qs, 1)}, {"k", random_tensor(ks, 2)},
                                       {"v", random_tensor(vs, 3)}, {"dy", random_tensor(ys, 4)},
                                       {"key", key_tensor(77)}};
    if (mask) feed["mask"] = mask_tensor;
    const CpuRun run = run_on_cpu(g, feed);
    for (size_t o = 0; o < got.size(); ++o) {
      const Tensor &a = run[got[o]], &b = run[want[o]];
      ASSERT_EQ(a.count(), b.count());
      for (int64_t i = 0; i < a.count(); ++i) {
        const float x = a.as<float>()[i], y = b.as<float>()[i];
        if (x == y) continue;  // also -inf
        ASSERT_NEAR(x, y, 3e-5 * (1 + std::fabs(y))) << "output " << o << " at " << i << " T " << c.T;
      }
    }
  }
}

struct LossCase {
  Sizes logits;
  bool weighted;
  std::string reduction;
  double smoothing;
};

TEST(CpuLoss, CrossEntropyAndGradient) {
  for (const LossCase& c : std::vector<LossCase>{{{6, 5}, false, "mean", 0},
                                                 {{6, 5}, true, "sum", 0.1},
                                                 {{4, 7, 3, 2}, true, "mean", 0.2},
                                                 {{4, 7, 3}, false, "none", 0},
                                                 {{300, 40}, false, "mean", 0}}) {
    Graph g(default_ops());
    const int64_t C = c.logits[1], inner = element_count(c.logits) / C / c.logits[0];
    Sizes ts = c.logits;
    ts.erase(ts.begin() + 1);
    const int64_t rows = element_count(ts);
    const Value x = g.input("x", f32(c.logits));
    const Value target = g.input("t", Type::tensor(DType::i64, fixed(ts)));
    const Value weight = c.weighted ? g.input("w", f32({C})) : Value{};
    const Attrs attrs{{"reduction", c.reduction}, {"label_smoothing", c.smoothing},
                      {"ignore_index", int64_t{-100}}};
    const std::vector<Value> in{x, target, weight};
    const auto out = g.emit("ort::CrossEntropy", in, attrs);
    const Value dloss = g.input("d", f32(c.reduction == "none" ? ts : Sizes{}));
    const std::vector<Value> back{dloss, x, target, out[1], weight};
    const Value dx = g.emit("ort::CrossEntropyGrad", back, attrs)[0];
    for (const Value v : {out[0], out[1], dx}) g.output(v, "out");
    Tensor xt = random_tensor(c.logits, 1, 2.0f), wt = random_tensor({C}, 2);
    for (int64_t i = 0; i < C; ++i) wt.as<float>()[i] = std::fabs(wt.as<float>()[i]) + 0.1f;
    Tensor tt = Tensor::empty(DType::i64, ts);
    for (int64_t i = 0; i < rows; ++i) tt.as<int64_t>()[i] = i % 4 == 3 ? -100 : i % C;
    const Tensor dt = random_tensor(c.reduction == "none" ? ts : Sizes{}, 3);
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"t", tt}, {"w", wt}, {"d", dt}});

    const auto w = [&](int64_t i) { return c.weighted ? double(wt.as<float>()[i]) : 1.0; };
    const auto at = [&](int64_t row, int64_t i) {
      return row / inner * C * inner + i * inner + row % inner;
    };
    double total = 0, sum = 0, all = 0;
    for (int64_t i = 0; i < C; ++i) all += w(i);
    std::vector<double> losses(rows), lse(rows);
    for (int64_t row = 0; row < rows; ++row) {
      double e = 0, smooth = 0;
      for (int64_t i = 0; i < C; ++i) e += std::exp(double(xt.as<float>()[at(row, i)]));
      lse[row] = std::log(e);
      const int64_t t = tt.as<int64_t>()[row];
      if (t < 0) continue;
      for (int64_t i = 0; i < C; ++i) smooth += w(i) * (lse[row] - xt.as<float>()[at(row, i)]);
      losses[row] = (1 - c.smoothing) * w(t) * (lse[row] - xt.as<float>()[at(row, t)]) +
                    c.smoothing / C * smooth;
      total += w(t);
      sum += losses[row];
    }
    for (int64_t row = 0; row < rows; ++row) {
      EXPECT_NEAR(run[out[1]].as<float>()[row], lse[row], 1e-5);
      if (c.reduction == "none") {
        EXPECT_NEAR(run[out[0]].as<float>()[row], losses[row], 1e-5);
      }
      const int64_t t = tt.as<int64_t>()[row];
      const double d = c.reduction == "none"   ? dt.as<float>()[row]
                       : c.reduction == "mean" ? dt.as<float>()[0] / total
                                               : dt.as<float>()[0];
      for (int64_t i = 0; i < C; ++i) {
        const double p = std::exp(xt.as<float>()[at(row, i)] - lse[row]);
        const double want = t < 0 ? 0
                                  : d * ((1 - c.smoothing) * w(t) * (p - (i == t)) +
                                         c.smoothing / C * (all * p - w(i)));
        EXPECT_NEAR(run[dx].as<float>()[at(row, i)], want, 1e-6);
      }
    }
    if (c.reduction == "mean") {
        EXPECT_NEAR(run[out[0]].as<float>()[0], sum / total, 1e-5);
      }
    if (c.reduction == "sum") {
        EXPECT_NEAR(run[out[0]].as<float>()[0], sum, 1e-4);
      }
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
    EXPECT_STREQ(error.what(),
                 "[ort::CrossEntropy] target 3 is out of range, expected 0 to 2 or ignore_index -100");
  }
}

}  // namespace
}  // namespace ort
