// Tile programs built by hand, against loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "providers/cpu/tile/tile.h"
#include "providers/tile/builder.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

using tile::Builder;
using tile::Port;
using tile::Space;
using Floats = std::vector<float>;

std::unique_ptr<Kernel> kernel_of(Builder& b, tile::Extent extent, std::string name) {
  return make_tile_kernel(std::make_shared<const tile::TileProgram>(b.finish()), std::move(extent),
                          std::move(name));
}

Floats random_floats(int64_t count, unsigned seed, float scale = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Floats values(static_cast<size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

void run(const Kernel& kernel, std::vector<const void*> in, std::vector<void*> out) {
  std::vector<void*> inputs;
  for (const void* p : in) inputs.push_back(const_cast<void*>(p));
  std::vector<char> scratch(kernel.scratch_bytes() + 64);
  auto aligned = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
  kernel.run({inputs.data(), out.data(), reinterpret_cast<void*>(aligned)});
}

void expect_close(float got, double want, double tolerance, const std::string& what) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " gave " << got;
  } else if (std::isinf(want) || std::fabs(want) > std::numeric_limits<float>::max()) {
    EXPECT_EQ(got, static_cast<float>(want)) << what;
  } else {
    EXPECT_NEAR(got, want, tolerance * std::fabs(want) + 1e-44) << what;
  }
}

struct Unary {
  const char* name;
  TileOp op;
  double (*oracle)(double);
  double tolerance;
};

constexpr double kUlp = 1.2e-7;
const Unary kUnary[] = {
    {"exp", TileOp::exp, [](double x) { return std::exp(x); }, 2 * kUlp},
    {"log", TileOp::log, [](double x) { return std::log(x); }, 2 * kUlp},
    {"tanh", TileOp::tanh, [](double x) { return std::tanh(x); }, 2.5 * kUlp},
    {"erf", TileOp::erf, [](double x) { return std::erf(x); }, 2 * kUlp},
    {"sigmoid", TileOp::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 3 * kUlp},
    {"sin", TileOp::sin, [](double x) { return std::sin(x); }, 40 * kUlp},
    {"cos", TileOp::cos, [](double x) { return std::cos(x); }, 40 * kUlp},
    {"sqrt", TileOp::sqrt, [](double x) { return std::sqrt(x); }, kUlp},
    {"relu", TileOp::relu, [](double x) { return x < 0 ? 0 : x; }, 0},
    {"neg", TileOp::neg, [](double x) { return -x; }, 0},
    {"abs", TileOp::abs, [](double x) { return std::fabs(x); }, 0},
    {"round", TileOp::round, [](double x) { return std::nearbyint(x); }, 0},
    {"sign", TileOp::sign, [](double x) { return x > 0   ? 1.0
                                                 : x < 0 ? -1.0
                                                         : 0.0; }, 0},
};

TEST(Tile, UnaryOpsMatchDouble) {
  Floats x = random_floats(1000, 1, 3.0f);
  for (const float v : {0.0f, -0.0f, 1e-40f, 1e-30f, 88.5f, -87.4f, 100.0f, -103.5f, -110.0f, 1e5f,
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(), std::nanf("")})
    x.push_back(v);
  const int64_t n = static_cast<int64_t>(x.size());
  for (const Unary& unary : kUnary) {
    Builder b;
    const auto in = b.input({Space::full, DType::f32});
    b.output(b.emit(unary.op, in), {Space::full, DType::f32});
    const auto kernel = kernel_of(b, {1, n, {}}, unary.name);
    Floats y(x.size());
    run(*kernel, {x.data()}, {y.data()});
    for (size_t i = 0; i < x.size(); ++i) {
      const bool circular = unary.op == TileOp::sin || unary.op == TileOp::cos;
      if (circular && std::fabs(unary.oracle(x[i])) < 0.01) continue;
      if (unary.op == TileOp::sign && std::isnan(x[i])) continue;
      double want = unary.oracle(x[i]);
      if (unary.op == TileOp::relu && std::isnan(x[i])) want = x[i];
      if (unary.op == TileOp::sigmoid && x[i] < -88) continue;  // denormal results
      expect_close(y[i], want, unary.tolerance,
                   std::string(unary.name) + "(" + std::to_string(x[i]) + ")");
    }
  }
}

TEST(Tile, AccuracyOverTheWholeRange) {
  // Relative error of exp, log, tanh and erf in units of float's spacing.
  const int64_t n = 1 << 20;
  Floats x(n), y(n);
  for (const Unary& unary : kUnary) {
    if (unary.tolerance == 0 || unary.op == TileOp::sin || unary.op == TileOp::cos) continue;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(-87.0 + 174.0 * static_cast<double>(i) / n);
      if (unary.op == TileOp::tanh || unary.op == TileOp::erf) x[i] /= 15.0f;
      if (unary.op == TileOp::log || unary.op == TileOp::sqrt) x[i] = std::exp(x[i]);
    }
    Builder b;
    const auto in = b.input({Space::full, DType::f32});
    b.output(b.emit(unary.op, in), {Space::full, DType::f32});
    run(*kernel_of(b, {1, n, {}}, unary.name), {x.data()}, {y.data()});
    double worst = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double want = unary.oracle(x[i]);
      const double spacing = std::ldexp(1.0, std::ilogb(want) - 23);
      if (want != 0) worst = std::max(worst, std::fabs(y[i] - want) / spacing);
    }
    RecordProperty(unary.name, std::to_string(worst));
    EXPECT_LT(worst, 3.0) << unary.name;
  }
}

// softmax(x * scale + mask) over rows, the mask [B,1,1,S] against [B,H,T,S].
TEST(Tile, MaskedSoftmax) {
  const int64_t B = 2, H = 3, T = 5, S = 37;
  const Floats x = random_floats(B * H * T * S, 2, 4.0f);
  std::vector<char> mask(B * S);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  Builder b;
  const auto in = b.input({Space::full, DType::f32});
  const auto keep = b.input({Space::full, DType::boolean, tile::Role::data, true});
  const auto score =
      b.emit(TileOp::where, keep, b.emit(TileOp::mul, in, b.constant(0.5)), b.constant(-1e9));
  const auto e = b.emit(TileOp::exp, b.emit(TileOp::sub, score, b.emit(TileOp::row_max, score)));
  b.output(b.emit(TileOp::div, e, b.emit(TileOp::row_sum, e)), {Space::full, DType::f32});
  const auto kernel = kernel_of(b, {B * H * T, S, {{}, {{B, H, T}, {S, 0, 0}}}}, "softmax");
  EXPECT_TRUE(kernel->in_place(0, 0));
  EXPECT_FALSE(kernel->in_place(1, 0));
  Floats y(x.size());
  run(*kernel, {x.data(), mask.data()}, {y.data()});
  for (int64_t row = 0; row < B * H * T; ++row) {
    double total = 0;
    const char* m = mask.data() + row / (H * T) * S;
    for (int64_t s = 0; s < S; ++s) total += m[s] ? std::exp(0.5 * x[row * S + s]) : 0;
    for (int64_t s = 0; s < S; ++s)
      EXPECT_NEAR(y[row * S + s], m[s] ? std::exp(0.5 * x[row * S + s]) / total : 0, 1e-6);
  }
}

// One program, bound to any sizes; what is over the columns is known then.
TEST(Tile, OneProgramForAllSizes) {
  Builder b;
  const auto in = b.input({Space::full, DType::f32});
  const auto weight = b.input({Space::column, DType::f32});
  const auto mean = b.emit(TileOp::row_sum, in, -1, -1, {.over_cols = true});
  b.output(b.emit(TileOp::sub, in, mean), {Space::full, DType::f32});
  b.output(b.emit(TileOp::row_sum, weight), {Space::column, DType::f32});  // of equal cells
  const auto program = std::make_shared<const tile::TileProgram>(b.finish());
  for (const auto& [R, C] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {40, 129}, {2, 5000}}) {
    const Floats x = random_floats(R * C, 11), w = random_floats(R, 12);
    Floats y(x.size()), sums(w.size());
    run(*make_tile_kernel(program, {R, C, {}}, "centred"), {x.data(), w.data()},
        {y.data(), sums.data()});
    for (int64_t r = 0; r < R; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < C; ++c) sum += x[r * C + c];
      for (int64_t c = 0; c < C; ++c)
        EXPECT_NEAR(y[r * C + c], x[r * C + c] - sum / static_cast<double>(C), 1e-6);
      EXPECT_NEAR(sums[r], w[r] * static_cast<double>(C), 1e-6 * static_cast<double>(C));
    }
  }
}

// The backward of a layer norm: row sums, column sums and a full output in one program.
TEST(Tile, LayerNormGradient) {
  for (const auto& [R, C] : {std::pair<int64_t, int64_t>{64, 768},
                             {7, 5},
                             {300, 33},
                             {1, 16},
                             {1000, 8},
                             {65, 31},
                             {33, 1},
                             {517, 17}}) {
    const Floats dy = random_floats(R * C, 3), x = random_floats(R * C, 4);
    const Floats w = random_floats(C, 5), mean = random_floats(R, 6), inv = random_floats(R, 7);
    Builder b;
    const Port full{Space::full, DType::f32};
    const auto v_dy = b.input(full), v_x = b.input(full);
    const auto v_w = b.input({Space::row, DType::f32});
    const auto v_mean = b.input({Space::column, DType::f32});
    const auto v_inv = b.input({Space::column, DType::f32});
    const auto xhat = b.emit(TileOp::mul, b.emit(TileOp::sub, v_x, v_mean), v_inv);
    const auto g = b.emit(TileOp::mul, v_dy, v_w);
    const tile::Number share{.over_cols = true};
    const auto m1 = b.emit(TileOp::row_sum, g, -1, -1, share);
    const auto m2 = b.emit(TileOp::row_sum, b.emit(TileOp::mul, g, xhat), -1, -1, share);
    const auto rest =
        b.emit(TileOp::sub, b.emit(TileOp::sub, g, m1), b.emit(TileOp::mul, xhat, m2));
    b.output(b.emit(TileOp::mul, rest, v_inv), full);
    const Port row{Space::row, DType::f32};
    b.output(b.emit(TileOp::column_sum, b.emit(TileOp::mul, v_dy, xhat)), row);
    b.output(b.emit(TileOp::column_sum, v_dy), row);
    const auto kernel = kernel_of(b, {R, C, {}}, "layer_norm_grad");
    Floats dx(R * C), dw(C), db(C), again(C);
    for (int turn = 0; turn < 2; ++turn) {
      run(*kernel, {dy.data(), x.data(), w.data(), mean.data(), inv.data()},
          {dx.data(), dw.data(), db.data()});
      if (turn == 0) again = dw;
    }
    EXPECT_EQ(0, std::memcmp(again.data(), dw.data(), dw.size() * 4));
    std::vector<double> want_dw(C), want_db(C);
    for (int64_t r = 0; r < R; ++r) {
      double s1 = 0, s2 = 0;
      for (int64_t c = 0; c < C; ++c) {
        const double hat = (double(x[r * C + c]) - mean[r]) * inv[r];
        s1 += double(dy[r * C + c]) * w[c];
        s2 += double(dy[r * C + c]) * w[c] * hat;
        want_dw[c] += dy[r * C + c] * hat;
        want_db[c] += dy[r * C + c];
      }
      for (int64_t c = 0; c < C; ++c) {
        const double hat = (double(x[r * C + c]) - mean[r]) * inv[r];
        const double want = (double(dy[r * C + c]) * w[c] - s1 / C - hat * s2 / C) * inv[r];
        EXPECT_NEAR(dx[r * C + c], want, 1e-5 * (1 + std::fabs(want)));
      }
    }
    for (int64_t c = 0; c < C; ++c) {
      EXPECT_NEAR(dw[c], want_dw[c], 2e-5 * (R + std::fabs(want_dw[c])));
      EXPECT_NEAR(db[c], want_db[c], 2e-5 * (R + std::fabs(want_db[c])));
    }
  }
}

using tile::scalar::philox_word;

TEST(Tile, PhiloxKnownAnswer) {
  // Random123's test vector for a zero counter and a zero key.
  EXPECT_EQ(philox_word(0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(philox_word(0, 0, 1), 0xe169c58du);
}

TEST(Tile, DropoutIsPhilox) {
  for (const auto& [R, C] : {std::pair<int64_t, int64_t>{33, 101}, {3, 5000}, {64, 768}}) {
    const Floats x = random_floats(R * C, 8), bias = random_floats(C, 9);
    const uint64_t key = 0x123456789abcdef0ull;
    Builder b;
    const auto in = b.input({Space::full, DType::f32});
    const auto shift = b.input({Space::row, DType::f32});
    const auto v_key = b.input({Space::scalar, DType::u64, tile::Role::key});
    b.output(b.emit(TileOp::dropout, b.emit(TileOp::add, in, shift), v_key, -1, {0.3}, 7),
             {Space::full, DType::f32});
    Floats y(x.size());
    run(*kernel_of(b, {R, C, {}}, "dropout"), {x.data(), bias.data(), &key}, {y.data()});
    int64_t kept = 0;
    for (int64_t i = 0; i < R * C; ++i) {
      const float u = static_cast<float>(philox_word(key, 7, i) >> 8) * 0x1p-24f;
      kept += u >= 0.3f;
      ASSERT_FLOAT_EQ(y[i], u >= 0.3f ? (x[i] + bias[i % C]) * (1.0f / 0.7f) : 0.0f) << i;
    }
    EXPECT_NEAR(double(kept) / double(R * C), 0.7, 0.03);
  }
}

TEST(Tile, BoolOutputAndEmptySpaces) {
  Builder b;
  const auto in = b.input({Space::full, DType::f32});
  const auto column = b.emit(TileOp::row_max, in);
  b.output(b.emit(TileOp::less, b.constant(0.5), in), {Space::full, DType::boolean});
  b.output(column, {Space::column, DType::f32});
  Floats x = random_floats(60, 10);
  x[25] = std::nanf("");
  bool above[60];
  float largest[3];
  run(*kernel_of(b, {3, 20, {}}, "above"), {x.data()}, {above, largest});
  for (int i = 0; i < 60; ++i) EXPECT_EQ(above[i], x[i] > 0.5f);
  EXPECT_TRUE(std::isnan(largest[1]));
  EXPECT_EQ(largest[0], *std::max_element(x.begin(), x.begin() + 20));

  Builder none;
  const auto empty = none.input({Space::full, DType::f32});
  none.output(none.emit(TileOp::column_sum, empty), {Space::row, DType::f32});
  float sums[4] = {1, 2, 3, 4};
  run(*kernel_of(none, {0, 4, {}}, "sum"), {nullptr}, {sums});
  for (const float s : sums) EXPECT_EQ(s, 0.0f);
}

}  // namespace
}  // namespace ort::cpu
