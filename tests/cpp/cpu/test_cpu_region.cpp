// Regions of the CPU provider: what is joined, and that the joined programs compute the graph.
#include <cmath>

#include "csrc/passes/regions.h"
#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

struct Norm {
  Value y, mean, inv;
};

Norm layer_norm(Value x, Value scale, Value bias) {
  const Value mean = reduce_mean(x, {-1});
  const Value d = x - mean;
  const Value inv = 1.0 / sqrt(reduce_mean(d * d, {-1}) + 1e-5);
  return {d * inv * scale + bias, mean, inv};
}

TEST(CpuRegion, LayerNormIsOneProgram) {
  Graph g(default_ops());
  const Dim b = Dim::symbol("b");
  const Value x = g.input("x", Type::tensor(DType::f32, Dims{b, 4, 24}));
  const Value scale = g.input("scale", f32({24})), bias = g.input("bias", f32({24}));
  const Norm n = layer_norm(x, scale, bias);
  for (const Value v : {n.y, n.mean, n.inv}) g.output(v, "out");
  for (const int64_t batch : {1, 3}) {
    const Tensor xt = random_tensor({batch, 4, 24}, 1), st = random_tensor({24}, 2),
                 bt = random_tensor({24}, 3);
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"scale", st}, {"bias", bt}}, {{"b", batch}});
    EXPECT_EQ(run.kernels.size(), 1u);
    for (int64_t r = 0; r < batch * 4; ++r) {
      const float* row = xt.as<float>() + r * 24;
      double mean = 0, var = 0;
      for (int i = 0; i < 24; ++i) mean += row[i] / 24.0;
      for (int i = 0; i < 24; ++i) var += (row[i] - mean) * (row[i] - mean) / 24.0;
      EXPECT_NEAR(run[n.mean].as<float>()[r], mean, 1e-6);
      for (int i = 0; i < 24; ++i) {
        const double want =
            (row[i] - mean) / std::sqrt(var + 1e-5) * st.as<float>()[i] + bt.as<float>()[i];
        EXPECT_NEAR(run[n.y].as<float>()[r * 24 + i], want, 1e-5);
      }
    }
  }
}

TEST(CpuRegion, GradientSumsShareTheProgram) {
  Graph g(default_ops());
  const Value dy = g.input("dy", f32({3, 5, 8})), x = g.input("x", f32({3, 5, 8}));
  const Value w = g.input("w", f32({8}));
  const Value product = dy * x;
  const Value dw = reduce_sum(product, {0, 1}, false);
  const Value dx = dy * w - reduce_sum(product, {-1});
  const Value db = reduce_sum(dy, {0, 1}, false);
  for (const Value v : {dw, dx, db}) g.output(v, "out");
  const Tensor dyt = random_tensor({3, 5, 8}, 1), xt = random_tensor({3, 5, 8}, 2),
               wt = random_tensor({8}, 3);
  const CpuRun run = run_on_cpu(g, {{"dy", dyt}, {"x", xt}, {"w", wt}});
  EXPECT_EQ(run.kernels.size(), 1u);
  for (int c = 0; c < 8; ++c) {
    double want = 0, plain = 0;
    for (int r = 0; r < 15; ++r) {
      want += double(dyt.as<float>()[r * 8 + c]) * xt.as<float>()[r * 8 + c];
      plain += dyt.as<float>()[r * 8 + c];
    }
    EXPECT_NEAR(run[dw].as<float>()[c], want, 1e-5);
    EXPECT_NEAR(run[db].as<float>()[c], plain, 1e-5);
  }
  for (int i = 0; i < 120; ++i) {
    double sum = 0;
    for (int c = 0; c < 8; ++c)
      sum += double(dyt.as<float>()[i / 8 * 8 + c]) * xt.as<float>()[i / 8 * 8 + c];
    EXPECT_NEAR(run[dx].as<float>()[i], double(dyt.as<float>()[i]) * wt.as<float>()[i % 8] - sum,
                1e-5);
  }
}

TEST(CpuRegion, ConvexityAndSegments) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({4, 4}));
  const Value a = exp(x);
  const Value m = matmul(a, a);  // outside
  const Value y = a + m;         // a -> matmul -> y: joining a and y would make a cycle
  const Value z = y * 2.0;
  g.output(z, "z");
  z.producer()->segment = 1;  // of another segment than y
  const auto regions = grow_regions(
      g, [](const Node& n) { return n.op != "MatMul" && n.op != "Constant"; },
      [](std::span<Node* const>) { return true; });
  EXPECT_EQ(regions.size(), 3u);
  // Two diamonds through each other's outside: a cycle between regions, not within one.
  Graph h(default_ops());
  const Value p = h.input("p", f32({4, 4}));
  const Value u = exp(p), v = tanh(p);
  const Value s = h.emit1("Add", {u, matmul(v, v)}), t = h.emit1("Add", {v, matmul(u, u)});
  h.output(s, "s");
  h.output(t, "t");
  const auto crossed = grow_regions(
      h, [](const Node& n) { return n.op != "MatMul"; },
      [](std::span<Node* const>) { return true; });
  size_t nodes = 0;
  for (const auto& region : crossed) nodes += region.size();
  EXPECT_EQ(nodes, 4u);
  EXPECT_GE(crossed.size(), 3u);
}

TEST(CpuRegion, MasksBroadcastAndBools) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({2, 3, 4, 5}));
  const Value keep = g.input("keep", Type::tensor(DType::boolean, fixed({2, 1, 1, 5})));
  const Value scale = g.input("scale", f32({3, 1, 1}));
  const Value count = g.input("count", Type::tensor(DType::i64, fixed({5})));
  const Value y = where(keep, x * scale, number(-1.0, x)) + cast(count, DType::f32);
  const Value big = y > 0.5;
  g.output(y, "y");
  g.output(big, "big");
  Tensor kt = Tensor::empty(DType::boolean, {2, 1, 1, 5});
  for (int i = 0; i < 10; ++i) kt.as<bool>()[i] = i % 3 != 0;
  const Tensor xt = random_tensor({2, 3, 4, 5}, 4), st = random_tensor({3, 1, 1}, 5);
  const CpuRun run = run_on_cpu(
      g, {{"x", xt}, {"keep", kt}, {"scale", st}, {"count", Tensor::of({1, 2, 3, 4, 5})}});
  for (int i = 0; i < 120; ++i) {
    const int b = i / 60, h = i / 20 % 3, s = i % 5;
    const float kept = kt.as<bool>()[b * 5 + s] ? xt.as<float>()[i] * st.as<float>()[h] : -1.0f;
    const float want = kept + static_cast<float>(s + 1);
    EXPECT_NEAR(run[y].as<float>()[i], want, 1e-6);
    EXPECT_EQ(run[big].as<bool>()[i], run[y].as<float>()[i] > 0.5f);
  }
}

TEST(CpuRegion, SpecialOps) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({40}));
  const Value clipped = g.emit1("Clip", {x, number(-0.5, x), number(0.5, x)});
  const Value cubes = pow(x, 3.0), squares = pow(x, 2.0), roots = pow(abs(x), 0.3);
  const Value gelu = g.emit1("Gelu", {x});
  const Value truth = cast(x, DType::boolean);
  const Value filled = full(g, {Dim(7)}, 2.5, DType::f32);
  for (const Value v : {clipped, cubes, squares, roots, gelu, truth, filled}) g.output(v, "out");
  Tensor xt = random_tensor({40}, 6);
  xt.as<float>()[3] = 0.0f;
  const CpuRun run = run_on_cpu(g, {{"x", xt}});
  for (int i = 0; i < 40; ++i) {
    const double v = xt.as<float>()[i];
    EXPECT_NEAR(run[clipped].as<float>()[i], std::clamp(v, -0.5, 0.5), 1e-6);
    EXPECT_NEAR(run[cubes].as<float>()[i], v * v * v, 1e-5);
    EXPECT_NEAR(run[squares].as<float>()[i], v * v, 1e-6);
    EXPECT_NEAR(run[roots].as<float>()[i], std::pow(std::fabs(v), 0.3), 1e-6);
    EXPECT_NEAR(run[gelu].as<float>()[i], 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))), 1e-6);
    EXPECT_EQ(run[truth].as<bool>()[i], v != 0);
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(run[filled].as<float>()[i], 2.5f);
}

}  // namespace
}  // namespace ort
