// Convolution, pooling and batch norm of the CPU provider against loops in double.
#include <cmath>

#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

struct Case {
  int64_t N, C, O, H, W, kernel, stride, pad, dilation, group;
};

// Calls f(y index, x index, w index) for every product of a 2-d convolution.
template <class F>
void each_product(const Case& c, int64_t OH, int64_t OW, F f) {
  const int64_t Ig = c.C / c.group, Og = c.O / c.group, K = c.kernel;
  for (int64_t n = 0; n < c.N; ++n)
    for (int64_t o = 0; o < c.O; ++o)
      for (int64_t i = 0; i < OH * OW; ++i)
        for (int64_t ci = 0; ci < Ig; ++ci)
          for (int64_t k = 0; k < K * K; ++k) {
            const int64_t h = i / OW * c.stride - c.pad + k / K * c.dilation;
            const int64_t w = i % OW * c.stride - c.pad + k % K * c.dilation;
            if (h < 0 || h >= c.H || w < 0 || w >= c.W) continue;
            const int64_t channel = o / Og * Ig + ci;
            f((n * c.O + o) * OH * OW + i, (n * c.C + channel) * c.H * c.W + h * c.W + w,
              (o * Ig + ci) * K * K + k);
          }
}

void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.count(), static_cast<int64_t>(want.size()));
  for (int64_t i = 0; i < got.count(); ++i)
    ASSERT_NEAR(got.as<float>()[i], want[static_cast<size_t>(i)], tolerance) << i;
}

TEST(CpuConv, ForwardAndGradients) {
  for (const Case& c : std::vector<Case>{{2, 3, 4, 7, 6, 3, 1, 1, 1, 1},
                                         {1, 16, 32, 9, 9, 3, 2, 1, 1, 1},
                                         {2, 8, 8, 8, 8, 3, 1, 2, 2, 8},
                                         {2, 6, 4, 5, 5, 1, 2, 0, 1, 2},
                                         {3, 8, 8, 2, 2, 7, 1, 3, 1, 8},  // no tap reaches all
                                         {5, 5, 5, 1, 1, 7, 1, 3, 1, 5},
                                         {2, 4, 4, 3, 2, 5, 2, 2, 1, 4},
                                         {2, 3, 3, 2, 3, 3, 1, 4, 4, 3}}) {
    Graph g(default_ops());
    const Sizes xs{c.N, c.C, c.H, c.W}, ws{c.O, c.C / c.group, c.kernel, c.kernel};
    const Attrs attrs{{"strides", std::vector<int64_t>{c.stride, c.stride}},
                      {"pads", std::vector<int64_t>(4, c.pad)},
                      {"dilations", std::vector<int64_t>{c.dilation, c.dilation}},
                      {"group", c.group}};
    const Value x = g.input("x", f32(xs)), w = g.input("w", f32(ws)), b = g.input("b", f32({c.O}));
    const Value y = g.emit1("Conv", {x, w, b}, attrs);
    const int64_t OH = *y.dim(2).value(), OW = *y.dim(3).value();
    const Sizes ys{c.N, c.O, OH, OW};
    const Value dy = g.input("dy", f32(ys));
    Attrs for_x = attrs, for_w = attrs;
    for_x.set("dims", fixed(xs));
    for_w.set("dims", fixed(ws));
    const Value dx = g.emit1("ort::ConvGradX", {dy, w}, for_x);
    const Value dw = g.emit1("ort::ConvGradW", {dy, x}, for_w);
    for (const Value v : {y, dx, dw}) g.output(v, "out");
    const Tensor xt = random_tensor(xs, 1), wt = random_tensor(ws, 2), bt = random_tensor({c.O}, 3),
                 dyt = random_tensor(ys, 4);
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"w", wt}, {"b", bt}, {"dy", dyt}});
    std::vector<double> want(dyt.count()), want_dx(xt.count()), want_dw(wt.count());
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = bt.as<float>()[static_cast<int64_t>(i) / (OH * OW) % c.O];
    each_product(c, OH, OW, [&](int64_t yi, int64_t xi, int64_t wi) {
      want[yi] += double(xt.as<float>()[xi]) * wt.as<float>()[wi];
      want_dx[xi] += double(dyt.as<float>()[yi]) * wt.as<float>()[wi];
      want_dw[wi] += double(dyt.as<float>()[yi]) * xt.as<float>()[xi];
    });
    expect_near(run[y], want, 2e-5);
    expect_near(run[dx], want_dx, 5e-5);
    expect_near(run[dw], want_dw, 2e-4);
  }
}

TEST(CpuConv, OneAxisAndTransposed) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({2, 3, 8})), w = g.input("w", f32({5, 3, 3}));
  const Value y = g.emit1("Conv", {x, w, Value{}}, {{"auto_pad", std::string("SAME_UPPER")}});
  const Value u = g.input("u", f32({2, 3, 4, 4})), k = g.input("k", f32({3, 2, 3, 3}));
  const Value bias = g.input("b", f32({2}));
  const Value up = g.emit1("ConvTranspose", {u, k, bias},
                           {{"strides", std::vector<int64_t>{2, 2}},
                            {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                            {"output_padding", std::vector<int64_t>{1, 1}}});
  g.output(y, "y");
  g.output(up, "up");
  const Tensor xt = random_tensor({2, 3, 8}, 1), wt = random_tensor({5, 3, 3}, 2),
               ut = random_tensor({2, 3, 4, 4}, 3), kt = random_tensor({3, 2, 3, 3}, 4),
               bt = random_tensor({2}, 5);
  const CpuRun run = run_on_cpu(g, {{"x", xt}, {"w", wt}, {"u", ut}, {"k", kt}, {"b", bt}});
  std::vector<double> want(2 * 5 * 8);
  for (int i = 0; i < 80; ++i)
    for (int c = 0; c < 3; ++c)
      for (int t = 0; t < 3; ++t) {
        const int at = i % 8 - 1 + t;
        if (at >= 0 && at < 8)
          want[i] += double(xt.as<float>()[(i / 40 * 3 + c) * 8 + at]) *
                     wt.as<float>()[(i / 8 % 5 * 3 + c) * 3 + t];
      }
  expect_near(run[y], want, 1e-5);
  const Case c{2, 2, 3, 8, 8, 3, 2, 1, 1, 1};  // the convolution whose input gradient it is
  std::vector<double> want_up(2 * 2 * 64);
  for (size_t i = 0; i < want_up.size(); ++i) want_up[i] = bt.as<float>()[i / 64 % 2];
  each_product(c, 4, 4, [&](int64_t yi, int64_t xi, int64_t wi) {
    want_up[xi] += double(ut.as<float>()[yi]) * kt.as<float>()[wi];
  });
  expect_near(run[up], want_up, 1e-5);
}

TEST(CpuPool, MaximaAveragesAndGradients) {
  Graph g(default_ops());
  const Value x = g.input("x", f32({2, 3, 7, 7}));
  const Attrs attrs{{"kernel_shape", std::vector<int64_t>{3, 3}},
                    {"strides", std::vector<int64_t>{2, 2}},
                    {"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const auto pooled = g.emit("MaxPool", std::vector<Value>{x}, attrs, 2);
  const Value dy = g.input("dy", f32({2, 3, 4, 4}));
  const Value dx = g.emit1("ort::MaxPoolGrad", {dy, pooled[1]}, {{"dims", fixed({2, 3, 7, 7})}});
  Attrs inclusive = attrs, backward = attrs;
  inclusive.set("count_include_pad", int64_t{1});
  backward.set("dims", fixed({2, 3, 7, 7}));
  const Value mean = g.emit1("AveragePool", {x}, attrs);
  const Value padded = g.emit1("AveragePool", {x}, inclusive);
  const Value dmean = g.emit1("ort::AveragePoolGrad", {dy}, backward);
  for (const Value v : {pooled[0], pooled[1], dx, mean, padded, dmean}) g.output(v, "out");
  const Tensor xt = random_tensor({2, 3, 7, 7}, 1), dyt = random_tensor({2, 3, 4, 4}, 2);
  const CpuRun run = run_on_cpu(g, {{"x", xt}, {"dy", dyt}});
  std::vector<double> want(96, -1e9), want_dx(294), average(96), average_dx(294), all(96);
  for (int64_t i = 0; i < 96; ++i) {
    std::vector<int64_t> taps;
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t h = i / 4 % 4 * 2 - 1 + k / 3, w = i % 4 * 2 - 1 + k % 3;
      if (h >= 0 && h < 7 && w >= 0 && w < 7) taps.push_back(i / 16 * 49 + h * 7 + w);
    }
    int64_t best = taps[0];
    for (const int64_t t : taps) {
      if (xt.as<float>()[t] > xt.as<float>()[best]) best = t;
      average[i] += xt.as<float>()[t] / static_cast<double>(taps.size());
      all[i] += xt.as<float>()[t] / 9.0;
      average_dx[t] += dyt.as<float>()[i] / static_cast<double>(taps.size());
    }
    want[i] = xt.as<float>()[best];
    want_dx[best] += dyt.as<float>()[i];
    EXPECT_EQ(run[pooled[1]].as<int64_t>()[i], best);
  }
  expect_near(run[pooled[0]], want, 0);
  expect_near(run[dx], want_dx, 1e-6);
  expect_near(run[mean], average, 1e-6);
  expect_near(run[padded], all, 1e-6);
  expect_near(run[dmean], average_dx, 1e-6);
}

TEST(CpuBatchNorm, TrainingAndItsGradient) {
  const int64_t N = 3, C = 4, P = 5 * 6;
  const Sizes xs{N, C, 5, 6};
  Graph g(default_ops());
  const Value x = g.input("x", f32(xs)), dy = g.input("dy", f32(xs));
  const Value scale = g.input("s", f32({C})), bias = g.input("b", f32({C}));
  const Value mean = g.input("m", f32({C})), var = g.input("v", f32({C}));
  const std::vector<Value> in{x, scale, bias, mean, var};
  const auto out = g.emit("ort::BatchNorm", in, {{"momentum", 0.3}}, 5);
  const std::vector<Value> back{dy, x, scale, out[3], out[4]};
  const auto grads = g.emit("ort::BatchNormGrad", back, {}, 3);
  for (const Value v : out) g.output(v, "out");
  for (const Value v : grads) g.output(v, "out");
  const Tensor xt = random_tensor(xs, 1, 2.0f), dyt = random_tensor(xs, 2),
               st = random_tensor({C}, 3), bt = random_tensor({C}, 4), mt = random_tensor({C}, 5),
               vt = random_tensor({C}, 6);
  const CpuRun run =
      run_on_cpu(g, {{"x", xt}, {"dy", dyt}, {"s", st}, {"b", bt}, {"m", mt}, {"v", vt}});
  for (int64_t c = 0; c < C; ++c) {
    const auto at = [&](int64_t i) { return (i / P * C + c) * P + i % P; };
    const double n = N * P;
    double m = 0, v = 0, sum = 0, dot = 0;
    for (int64_t i = 0; i < N * P; ++i) m += xt.as<float>()[at(i)] / n;
    for (int64_t i = 0; i < N * P; ++i) v += std::pow(xt.as<float>()[at(i)] - m, 2) / n;
    const double inv = 1 / std::sqrt(v + 1e-5), s = st.as<float>()[c];
    for (int64_t i = 0; i < N * P; ++i) {
      sum += dyt.as<float>()[at(i)];
      dot += dyt.as<float>()[at(i)] * (xt.as<float>()[at(i)] - m) * inv;
    }
    EXPECT_NEAR(run[out[1]].as<float>()[c], 0.7 * mt.as<float>()[c] + 0.3 * m, 1e-5);
    EXPECT_NEAR(run[out[2]].as<float>()[c], 0.7 * vt.as<float>()[c] + 0.3 * v * n / (n - 1), 1e-5);
    EXPECT_NEAR(run[grads[1]].as<float>()[c], dot, 1e-4);
    EXPECT_NEAR(run[grads[2]].as<float>()[c], sum, 1e-4);
    for (int64_t i = 0; i < N * P; ++i) {
      const double hat = (xt.as<float>()[at(i)] - m) * inv;
      EXPECT_NEAR(run[out[0]].as<float>()[at(i)], hat * s + bt.as<float>()[c], 1e-5);
      EXPECT_NEAR(run[grads[0]].as<float>()[at(i)],
                  s * inv * (dyt.as<float>()[at(i)] - sum / n - hat * dot / n), 1e-5);
    }
  }
}

}  // namespace
}  // namespace ort
