// Matrix products of the CPU provider against loops in double.
#include <cmath>

#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

double activated(double x, const std::string& activation) {
  if (activation == "relu") return std::max(x, 0.0);
  if (activation == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (activation == "tanh") return std::tanh(x);
  if (activation == "sigmoid") return 1 / (1 + std::exp(-x));
  if (activation == "silu") return x / (1 + std::exp(-x));
  if (activation == "gelu_tanh")
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

struct Case {
  int64_t m, n, k;
  bool trans_a, trans_b, bias;
  double alpha;
  std::string activation;
};

TEST(CpuMatMul, FusedProducts) {
  for (const Case& c : std::vector<Case>{{5, 7, 3, false, false, false, 1, "none"},
                                         {5, 7, 3, true, false, true, 0.5, "relu"},
                                         {32, 128, 64, false, true, true, 1, "gelu"},
                                         {3, 1, 9, true, true, true, 2, "tanh"},
                                         {200, 160, 150, false, true, true, 1, "gelu"},
                                         {200, 160, 150, true, false, true, 0.5, "silu"},
                                         {200, 160, 150, false, false, false, 1, "gelu_tanh"},
                                         {160, 200, 128, true, true, false, 0.125, "sigmoid"}}) {
    Graph g(default_ops());
    const Sizes as = c.trans_a ? Sizes{c.k, c.m} : Sizes{c.m, c.k};
    const Sizes bs = c.trans_b ? Sizes{c.n, c.k} : Sizes{c.k, c.n};
    const Value a = g.input("a", f32(as)), b = g.input("b", f32(bs));
    const Value bias = c.bias ? g.input("bias", f32({c.n})) : Value{};
    const Value y = g.emit1("ort::MatMul", {a, b, bias},
                            {{"trans_a", int64_t{c.trans_a}},
                             {"trans_b", int64_t{c.trans_b}},
                             {"alpha", c.alpha},
                             {"activation", c.activation}});
    g.output(y, "y");
    const Tensor at = random_tensor(as, 1), bt = random_tensor(bs, 2), ct = random_tensor({c.n}, 3);
    const CpuRun run = run_on_cpu(g, {{"a", at}, {"b", bt}, {"bias", ct}});
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < c.k; ++k)
          sum += double(at.as<float>()[c.trans_a ? k * c.m + i : i * c.k + k]) *
                 bt.as<float>()[c.trans_b ? j * c.k + k : k * c.n + j];
        const double want =
            activated(c.alpha * sum + (c.bias ? ct.as<float>()[j] : 0.0f), c.activation);
        ASSERT_NEAR(run[y].as<float>()[i * c.n + j], want, 2e-5 * (1 + std::fabs(want)))
            << c.m << " " << c.n << " " << c.k << " " << c.activation;
      }
  }
}

TEST(CpuMatMul, BatchesBroadcast) {
  struct Shapes {
    Sizes a, b, out;
  };
  for (const Shapes& s : std::vector<Shapes>{{{2, 3, 4, 5}, {2, 3, 5, 6}, {2, 3, 4, 6}},
                                             {{2, 1, 4, 5}, {3, 5, 6}, {2, 3, 4, 6}},
                                             {{2, 3, 4, 5}, {5, 6}, {2, 3, 4, 6}},
                                             {{5}, {2, 5, 6}, {2, 6}},
                                             {{2, 4, 5}, {5}, {2, 4}},
                                             {{5}, {5}, {}},
                                             {{2, 0}, {0, 3}, {2, 3}},
                                             {{0, 5}, {5, 3}, {0, 3}}}) {
    Graph g(default_ops());
    const Value a = g.input("a", f32(s.a)), b = g.input("b", f32(s.b));
    const Value y = matmul(a, b);
    g.output(y, "y");
    ASSERT_EQ(y.dims(), fixed(s.out));
    const Tensor at = random_tensor(s.a, 1), bt = random_tensor(s.b, 2);
    const CpuRun run = run_on_cpu(g, {{"a", at}, {"b", bt}});
    // Promote to [2, 3, ...] by hand.
    const int64_t K = s.a.back(), M = s.a.size() > 1 ? s.a[s.a.size() - 2] : 1;
    const int64_t N = s.b.size() > 1 ? s.b.back() : 1;
    const int64_t batch = M * N == 0 ? 0 : element_count(s.out) / (M * N);
    const auto start = [&](const Sizes& sizes, int64_t at_batch, int64_t matrix) -> int64_t {
      const int64_t own = matrix == 0 ? 1 : element_count(sizes) / matrix;
      if (own == batch) return at_batch * matrix;
      if (own == 1) return 0;
      return sizes.size() == 4 ? at_batch / 3 * matrix : at_batch % 3 * matrix;
    };
    for (int64_t i = 0; i < batch * M * N; ++i) {
      const int64_t at_batch = i / (M * N), row = i / N % M, col = i % N;
      double want = 0;
      for (int64_t k = 0; k < K; ++k)
        want += double(at.as<float>()[start(s.a, at_batch, M * K) + row * K + k]) *
                bt.as<float>()[start(s.b, at_batch, K * N) + k * N + col];
      EXPECT_NEAR(run[y].as<float>()[i], want, 1e-5);
    }
  }
}

TEST(CpuMatMul, LinearGemmAndIntegers) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({2, 3, 4})), w = g.input("w", f32({5, 4}));
  const Value bias = g.input("b", f32({5})), full_bias = g.input("c", f32({3, 5}));
  const Value a = g.input("a", f32({4, 3}));
  const Value i = g.input("i", Type::tensor(DType::i64, fixed({2, 2})));
  const Value y = g.emit1("ort::Linear", {x, w, bias}, {{"activation", std::string("relu")}});
  const Value z = g.emit1("Gemm", {a, w, full_bias},
                          {{"alpha", 0.5}, {"transA", int64_t{1}}, {"transB", int64_t{1}}});
  const Value p = matmul(i, i);
  for (const Value v : {y, z, p}) g.output(v, "out");
  const Tensor xt = random_tensor({2, 3, 4}, 1), wt = random_tensor({5, 4}, 2),
               bt = random_tensor({5}, 3), ct = random_tensor({3, 5}, 4),
               at = random_tensor({4, 3}, 5);
  Tensor it = Tensor::empty(DType::i64, {2, 2});
  for (int k = 0; k < 4; ++k) it.as<int64_t>()[k] = k + 1;
  const CpuRun run =
      run_on_cpu(g, {{"x", xt}, {"w", wt}, {"b", bt}, {"c", ct}, {"a", at}, {"i", it}});
  for (int r = 0; r < 6; ++r)
    for (int n = 0; n < 5; ++n) {
      double want = bt.as<float>()[n];
      for (int k = 0; k < 4; ++k)
        want += double(xt.as<float>()[r * 4 + k]) * wt.as<float>()[n * 4 + k];
      EXPECT_NEAR(run[y].as<float>()[r * 5 + n], std::max(want, 0.0), 1e-5);
    }
  for (int r = 0; r < 3; ++r)
    for (int n = 0; n < 5; ++n) {
      double sum = 0;
      for (int k = 0; k < 4; ++k)
        sum += double(at.as<float>()[k * 3 + r]) * wt.as<float>()[n * 4 + k];
      EXPECT_NEAR(run[z].as<float>()[r * 5 + n], 0.5 * sum + ct.as<float>()[r * 5 + n], 1e-5);
    }
  const int64_t want[] = {7, 10, 15, 22};
  for (int k = 0; k < 4; ++k) EXPECT_EQ(run[p].as<int64_t>()[k], want[k]);
}

}  // namespace
}  // namespace ort
