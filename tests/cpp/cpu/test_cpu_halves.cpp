// Halves on the CPU provider: where tile programs round, what they may write over, and long sums.
#include "providers/cpu/half.h"

#include <cmath>

#include "providers/cpu/tile/tile.h"
#include "providers/tile/builder.h"
#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

using cpu::BFloat16;

Type bf16(const Sizes& sizes) {
  return Type::tensor(DType::bf16, fixed(sizes));
}

Tensor halves_of(const Tensor& wide) {
  Tensor half = Tensor::empty(DType::bf16, wide.sizes);
  for (int64_t i = 0; i < wide.count(); ++i) half.as<BFloat16>()[i] = BFloat16(wide.as<float>()[i]);
  return half;
}

Tensor random_halves(Sizes sizes, unsigned seed) {
  return halves_of(random_tensor(std::move(sizes), seed));
}

float rounded(double x) {
  return BFloat16(static_cast<float>(x));
}

// (x + 2^-10) - x at x = 1, of which bfloat16 keeps nothing in between.
float rest_of_one(bool parts_of_one_op) {
  Graph g(default_ops());
  const Value x = g.input("x", bf16({40}));
  if (parts_of_one_op) g.begin_op();
  const Value y = (x + 0.0009765625) - x;
  g.output(y, "y");
  Tensor ones = Tensor::empty(DType::bf16, {40});
  std::fill_n(ones.as<BFloat16>(), 40, BFloat16(1.0f));
  const CpuRun run = run_on_cpu(g, {{"x", ones}});
  EXPECT_EQ(run.kernels.size(), 1u);
  for (int i = 1; i < 40; ++i) EXPECT_EQ(run[y].as<BFloat16>()[i], run[y].as<BFloat16>()[0]);
  return run[y].as<BFloat16>()[0];
}

TEST(CpuHalves, BetweenOpsARegionRoundsAsMemoryDoes) {
  EXPECT_EQ(rest_of_one(false), 0.0f);
}

TEST(CpuHalves, BetweenThePartsOfOneOpNothingIsRounded) {
  EXPECT_EQ(rest_of_one(true), 0.0009765625f);
}

// Of a value that is kept, too: the backward compares it again.
TEST(CpuHalves, WhatComparesSeesWhatMemoryHolds) {
  Graph g(default_ops());
  const Value x = g.input("x", bf16({3, 40}));
  const Value sum = x * 1.0009765625, same = equal(sum, x), highest = reduce_max(sum, {-1});
  const Value mask = equal(sum, highest);
  for (const Value v : {sum, same, highest, mask}) g.output(v, "out");
  const Tensor xt = random_halves({3, 40}, 1);
  const CpuRun run = run_on_cpu(g, {{"x", xt}});
  EXPECT_EQ(run.kernels.size(), 1u);
  for (int i = 0; i < 120; ++i) {
    const float kept = run[sum].as<BFloat16>()[i], top = run[highest].as<BFloat16>()[i / 40];
    EXPECT_EQ(run[same].as<bool>()[i], kept == xt.as<BFloat16>()[i]);
    EXPECT_EQ(run[mask].as<bool>()[i], kept == top);
  }
}

TEST(CpuHalves, ACastToAHalfRoundsInARegion) {
  for (const DType half : {DType::bf16, DType::f16}) {
    Graph g(default_ops());
    const Value x = g.input("x", f32({100}));
    const Value rest = x - cast(cast(x, half), DType::f32);
    g.output(rest, "rest");
    const Tensor xt = random_tensor({100}, 2);
    const CpuRun run = run_on_cpu(g, {{"x", xt}});
    EXPECT_EQ(run.kernels.size(), 1u);
    for (int i = 0; i < 100; ++i) {
      const float v = xt.as<float>()[i];
      const float near = half == DType::bf16 ? rounded(v) : half_to_float(float_to_half(v));
      EXPECT_EQ(run[rest].as<float>()[i], v - near);
    }
  }
}

// A thousand ones: a sum of halves would stay at 256.
TEST(CpuHalves, SumsAreOfFloat32) {
  Graph g(default_ops());
  const Dim rows = Dim::symbol("rows");
  const Value x = g.input("x", Type::tensor(DType::bf16, Dims{rows, 24}));
  const Value w = g.input("w", bf16({24}));
  const Value scaled = x * w, down = reduce_sum(scaled, {0}, false);
  const Value across = reduce_sum(scaled, {-1}, false);
  for (const Value v : {scaled, down, across}) g.output(v, "out");
  for (const int64_t count : {1, 1000}) {
    const Tensor xt = random_halves({count, 24}, 3), wt = random_halves({24}, 4);
    if (count == 1000) std::fill_n(static_cast<BFloat16*>(xt.data), xt.count(), BFloat16(1.0f));
    const CpuRun run = run_on_cpu(g, {{"x", xt}, {"w", wt}}, {{"rows", count}});
    EXPECT_EQ(run.kernels.size(), 1u);
    for (int c = 0; c < 24; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < count; ++r)
        sum += double(xt.as<BFloat16>()[r * 24 + c]) * wt.as<BFloat16>()[c];
      EXPECT_NEAR(run[down].as<BFloat16>()[c], sum, std::fabs(sum) / 256 + 1e-4);
    }
  }
}

TEST(CpuHalves, AHalfIsWrittenOverAHalfAlone) {
  tile::Builder b;
  const auto half = b.input({tile::Space::full, DType::bf16});
  const auto wide = b.input({tile::Space::full, DType::f32});
  const auto sum = b.emit(tile::Op::add, half, wide);
  b.output(sum, {tile::Space::full, DType::bf16});
  b.output(b.emit(tile::Op::exp, sum), {tile::Space::full, DType::f32});
  const auto kernel = cpu::make_tile_kernel(std::make_shared<const tile::TileProgram>(b.finish()),
                                            {4, 300, {}}, "add+exp");
  EXPECT_TRUE(kernel->in_place(0, 0));
  EXPECT_FALSE(kernel->in_place(0, 1));
  EXPECT_FALSE(kernel->in_place(1, 0));
  EXPECT_TRUE(kernel->in_place(1, 1));
  Tensor x = random_halves({4, 300}, 5), y = random_tensor({4, 300}, 6);
  const Tensor was = random_halves({4, 300}, 5), added = random_tensor({4, 300}, 6);
  Tensor scratch = Tensor::empty(DType::u8, {static_cast<int64_t>(kernel->scratch_bytes())});
  void* const both[] = {x.data, y.data};
  kernel->run({both, both, scratch.data});
  for (int i = 0; i < 1200; ++i) {
    const float want = float(was.as<BFloat16>()[i]) + added.as<float>()[i];
    EXPECT_EQ(float(x.as<BFloat16>()[i]), rounded(want));
    EXPECT_NEAR(y.as<float>()[i], std::exp(want), 1e-5 * std::exp(want));
  }
}

// Of the middle axis, and of all of them: no tile program takes these.
TEST(CpuHalves, LongReductions) {
  Graph g(default_ops());
  const Value x = g.input("x", bf16({4, 300, 1100}));
  const Value middle = reduce_mean(x, {1}), all = reduce("ReduceSum", x, {0, 1, 2}, false);
  const Value top = reduce_max(x, {0, 1, 2});
  for (const Value v : {middle, all, top}) g.output(v, "out");
  const Tensor xt = random_halves({4, 300, 1100}, 7);
  const CpuRun run = run_on_cpu(g, {{"x", xt}});
  std::vector<double> means(4400);
  double sum = 0, highest = -1e30;
  for (int64_t i = 0; i < xt.count(); ++i) {
    const double v = xt.as<BFloat16>()[i];
    means[static_cast<size_t>(i / 330000 * 1100 + i % 1100)] += v / 300;
    sum += v;
    highest = std::max(highest, v);
  }
  for (size_t i = 0; i < means.size(); ++i)
    EXPECT_NEAR(run[middle].as<BFloat16>()[i], means[i], std::fabs(means[i]) / 256 + 1e-6);
  EXPECT_NEAR(*run[all].as<BFloat16>(), sum, std::fabs(sum) / 256 + 0.1);
  EXPECT_EQ(*run[top].as<BFloat16>(), highest);
}

TEST(CpuHalves, RowsOfAnEmbeddingAreSummedInFloat32) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Graph g(default_ops());
    const Value dy = g.input("dy", Type::tensor(dtype, fixed({2, 900, 20})));
    const Value at = g.input("at", Type::tensor(DType::i64, fixed({900})));
    const Value dx =
        g.emit1("ort::GatherGrad", {dy, at},
                {{"axis", int64_t{1}}, {"dims", fixed({2, 7, 20})}, {"padding_idx", int64_t{6}}});
    g.output(dx, "dx");
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < 900; ++i) indices.push_back(i % 5 == 0 ? 6 : i % 3);
    const Tensor wide = random_tensor({2, 900, 20}, 8), narrow = halves_of(wide);
    const bool half = dtype == DType::bf16;
    const CpuRun run = run_on_cpu(g, {{"dy", half ? narrow : wide}, {"at", Tensor::of(indices)}});
    std::vector<double> want(280);
    for (int64_t i = 0; i < wide.count(); ++i) {
      const int64_t row = indices[static_cast<size_t>(i / 20 % 900)];
      if (row == 6) continue;
      const double v = half ? float(narrow.as<BFloat16>()[i]) : wide.as<float>()[i];
      want[static_cast<size_t>(i / 18000 * 140 + row * 20 + i % 20)] += v;
    }
    for (size_t i = 0; i < want.size(); ++i) {
      const double got = half ? float(run[dx].as<BFloat16>()[i]) : run[dx].as<float>()[i];
      EXPECT_NEAR(got, want[i], std::fabs(want[i]) / (half ? 256 : 1e5) + 1e-4);
    }
  }
}

}  // namespace
}  // namespace ort
