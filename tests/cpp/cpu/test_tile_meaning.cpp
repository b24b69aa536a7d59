// Each instruction's vector code against its scalar meaning, and the meaning against the C library
// where both are double: NaNs, infinities, zeros of both signs and denormals among the numbers.
#include "csrc/core/simd.h"

// After it, as it says which targets there are.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "providers/cpu/convert.h"
#include "providers/cpu/half.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

using Floats = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kCount = 67;  // whole vectors and a part

// A third of the numbers are special.
Floats numbers(unsigned seed) {
  const float special[] = {0.0f,   -0.0f, 1e-40f, -1e-40f, 1e-45f,  std::nanf(""), kInf,
                           -kInf,  1.0f,  -1.0f,  0.5f,    -2.5f,   3.5f,          100.0f,
                           -100.f, 1e30f, -1e30f, 1e-30f,  3.4e38f, -87.5f,        88.5f};
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  Floats values;
  for (int64_t i = 0; i < kCount; ++i)
    values.push_back(generator() % 3 == 0 ? special[generator() % std::size(special)]
                                          : normal(generator));
  return values;
}

Floats run(TileFunction f, const std::vector<Floats>& operands, int variant) {
  Floats result(kCount);
  TileArgs t{};
  t.dst = result.data();
  t.a = operands[0].data();
  t.b = operands[1].data();
  t.c = operands[2].data();
  t.count = kCount;
  t.p = 1.0f;
  t.variant = variant;
  f(t);
  return result;
}

// How far a function's vector code may be from its meaning, relative and absolute.
struct Tolerance {
  double relative = 4 * 1.2e-7, absolute = 1e-44;
};

Tolerance tolerance_of(TileOp op, float x) {
  switch (op) {
    case TileOp::sin:
    case TileOp::cos:
      return {5e-6, 5e-6};  // also where the result is next to nothing
    case TileOp::gelu:      // an error of the exponent; the meaning's 1 + erf cancels
      return {1e-5, 1e-15 * std::fabs(x)};
    case TileOp::gelu_derivative:  // it crosses zero
    case TileOp::gelu_tanh_derivative:
    case TileOp::silu_derivative:
      return {1e-6, 3e-7};
    case TileOp::gelu_tanh:  // an error of the exponent
      return {2e-5, 1e-35};
    case TileOp::sigmoid:  // a denormal is 0
    case TileOp::silu:
      return {1e-6, 1e-35};
    default:
      return {};
  }
}

bool close(float got, float want, Tolerance tolerance) {
  if (std::isnan(want) || std::isinf(want) || std::isinf(got))
    return std::isnan(want) ? std::isnan(got) : got == want;
  return std::fabs(double(got) - want) <= tolerance.relative * std::fabs(want) + tolerance.absolute;
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// What `check` says where each of the vector targets runs.
template <class Check>
void on_each_target(const Check& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target);
    check();
  }
  hwy::GetChosenTarget().DeInit();  // the best one again
}

template <class Agrees>
void compare_here(TileOp op, int operands, Agrees agrees) {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (int variant = 0; variant < 1 << operands; ++variant) {
      const std::vector<Floats> x = {numbers(seed), numbers(seed + 100), numbers(seed + 200)};
      const TileFunction vectors = vector_function(op, variant);
      ASSERT_TRUE(vectors) << tile::name_of(op);
      const Floats got = run(vectors, x, variant), want = run(loop_function<float>(op), x, variant);
      const auto at = [&](int k, int64_t i) { return x[k][variant >> k & 1 ? 0 : i]; };
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_TRUE(agrees(got[i], want[i], at(0, i), at(1, i), at(2, i)))
            << tile::name_of(op) << "(" << at(0, i) << ", " << at(1, i) << ", " << at(2, i)
            << ") is " << got[i] << ", means " << want[i];
    }
}

template <class Agrees>
void compare(TileOp op, int operands, Agrees agrees) {
  on_each_target([&] { compare_here(op, operands, agrees); });
}

#define ORT_OP(NAME) TileOp::NAME,

TEST(TileMeaning, ArithmeticIsExact) {
  const auto exact = [](float got, float want, float, float, float) { return same(got, want); };
  for (const TileOp op : {ORT_TILE_ARITHMETIC_1(ORT_OP)}) compare(op, 1, exact);
  for (const TileOp op : {ORT_TILE_ARITHMETIC_2(ORT_OP) ORT_TILE_REMAINDERS(ORT_OP)})
    compare(op, 2, exact);
  compare(TileOp::where, 3, exact);
  for (const TileOp op :
       {TileOp::floor, TileOp::ceil, TileOp::round, TileOp::is_nan, TileOp::is_inf, TileOp::sqrt,
        TileOp::reciprocal, TileOp::to_bf16, TileOp::to_f16})
    compare(op, 1, exact);
}

TEST(TileMeaning, FunctionsAreClose) {
  for (const TileOp op : {ORT_TILE_FUNCTIONS(ORT_OP) ORT_TILE_LIBRARY(ORT_OP)})
    compare(op, 1, [op](float got, float want, float x, float, float) {
      return close(got, want, tolerance_of(op, x));
    });
  for (const TileOp op : {ORT_TILE_FUNCTIONS_2(ORT_OP)})
    compare(op, 2, [](float got, float want, float, float, float) { return close(got, want, {}); });
}

// Every half, and what lies between two of them: the middle, which goes to the even one, and its
// neighbours.
template <class H>
void check_conversions(DType dtype) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  Floats wide(halves.size());
  widen(dtype, halves.data(), wide.data(), static_cast<int64_t>(wide.size()));
  Floats between;
  for (size_t i = 0; i < halves.size(); ++i) {
    H half;
    half.bits = halves[i];
    ASSERT_TRUE(same(wide[i], half)) << i;
    const uint32_t middle =
        std::bit_cast<uint32_t>(wide[i]) + (dtype == DType::f16 ? 0x1000 : 0x8000);
    for (const int step : {-1, 0, 1})
      between.push_back(std::bit_cast<float>(middle + static_cast<uint32_t>(step)));
  }
  between.insert(between.end(), wide.begin(), wide.end());
  std::vector<H> got(between.size());
  narrow(between.data(), dtype, got.data(), static_cast<int64_t>(got.size()));
  for (size_t i = 0; i < between.size(); ++i)
    ASSERT_TRUE(same(got[i], H(between[i]))) << between[i] << " is rounded to " << float(got[i]);
}

TEST(TileMeaning, ConversionsOfHalves) {
  on_each_target([] {
    check_conversions<Float16>(DType::f16);
    check_conversions<BFloat16>(DType::bf16);
  });
}

// Rounded once or twice: an infinity of one may be a large number of the other.
TEST(TileMeaning, ProductsAndSums) {
  compare(TileOp::mul_add, 3, [](float got, float want, float a, float b, float c) {
    const double product = double(a) * b, size = std::fabs(product) + std::fabs(c);
    if (std::isinf(a * b) && !std::isinf(product)) return true;
    if (!std::isfinite(product) || !std::isfinite(c)) return same(got, want);
    return size > 3e38 || std::fabs(got - (product + c)) <= 2.4e-7 * size + 1e-44;
  });
}

TEST(TileMeaning, RowsAndColumns) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<Floats> x = {numbers(seed), numbers(seed + 100), numbers(seed + 200)};
    for (const TileOp op : {TileOp::row_max, TileOp::row_min})
      EXPECT_TRUE(
          same(run(vector_function(op, 0), x, 0)[0], run(loop_function<float>(op), x, 0)[0]))
          << tile::name_of(op);
    for (Floats& values : x)  // sums in another order agree where nothing overflows
      for (float& value : values) value = std::isnan(value) ? 1.0f : std::fmod(value, 10.0f);
    for (Floats& values : x)
      for (float& value : values) value = std::isnan(value) ? 2.0f : value;  // of an infinity
    for (const TileOp op :
         {TileOp::row_sum, TileOp::row_dot, TileOp::column_sum, TileOp::column_dot}) {
      const Floats got = run(vector_function(op, 0), x, 0);
      const Floats want = run(loop_function<float>(op), x, 0);
      for (int64_t i = 0; i < kCount; ++i) EXPECT_NEAR(got[i], want[i], 1e-3) << tile::name_of(op);
    }
  }
}

TEST(TileMeaning, DropoutOfAnyType) {
  const Floats x(kCount, 3.0f);
  Floats y(kCount);
  std::vector<double> wide(kCount, 3.0), wide_y(kCount);
  TileArgs t{};
  t.dst = y.data();
  t.a = x.data();
  TileArgsOf<double> d{};
  d.dst = wide_y.data();
  d.a = wide.data();
  t.count = d.count = kCount;
  t.p = 0.25f;
  d.p = 0.25;
  t.key = d.key = 0x123456789abcdef0ull;
  t.counter = d.counter = 5;
  t.index = d.index = 41;
  vector_function(TileOp::dropout, 0)(t);
  loop_function<double>(TileOp::dropout)(d);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(y[i] == 0, wide_y[i] == 0) << i;
  for (int64_t i = 0; i < kCount; ++i) EXPECT_NEAR(y[i], wide_y[i], 1e-6) << i;
}

template <class T>
void check_typed_loops() {
  std::mt19937_64 generator(3);
  constexpr size_t kMany = 777;  // more than one run of a loop, and a part of one
  std::vector<T> x[3];
  for (std::vector<T>& values : x)
    for (size_t i = 0; i < kMany; ++i)
      values.push_back(i % 3 == 0 ? static_cast<T>(i % 5) : static_cast<T>(generator()));
  std::vector<T> got(kMany), want(kMany);
  for (const TileOp op : {ORT_TILE_OPS(ORT_OP)})
    for (int variant = 0; variant < 8; ++variant) {
      const TileFunctionOf<T> typed = typed_function<T>(op);
      // A product and a sum may be rounded once.
      if (!typed || (op == TileOp::mul_add && !std::is_integral_v<T>)) continue;
      TileArgsOf<T> t{};
      t.a = x[0].data();
      t.b = x[1].data();
      t.c = x[2].data();
      t.count = kMany;
      t.variant = variant;
      t.dst = got.data();
      typed(t);
      t.dst = want.data();
      loop_function<T>(op)(t);
      for (size_t i = 0; i < kMany; ++i)
        ASSERT_TRUE(got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]))
            << tile::name_of(op) << " of " << sizeof(T) << " bytes";
    }
}

TEST(TileMeaning, TypedLoopsMeanTheSame) {
  on_each_target([] {
    check_typed_loops<int8_t>();
    check_typed_loops<int16_t>();
    check_typed_loops<int32_t>();
    check_typed_loops<int64_t>();
    check_typed_loops<uint8_t>();
    check_typed_loops<uint16_t>();
    check_typed_loops<uint32_t>();
    check_typed_loops<uint64_t>();
    check_typed_loops<double>();
  });
}

TEST(TileMeaning, OfIntegers) {
  namespace scalar = tile::scalar;
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(scalar::neg(kLowest), kLowest);
  EXPECT_EQ(scalar::abs<int8_t>(-128), -128);
  EXPECT_EQ(scalar::div(kLowest, int64_t{-1}), kLowest);
  EXPECT_EQ(scalar::div(-7, 2), -3);
  EXPECT_EQ(scalar::mod(-7, 3), 2);
  EXPECT_EQ(scalar::fmod(-7, 3), -1);
  EXPECT_EQ(scalar::mod(kLowest, int64_t{-1}), 0);
  EXPECT_EQ(scalar::add<uint8_t>(200, 100), 44);
  EXPECT_EQ(scalar::mul<uint16_t>(65535, 65535), 1);
  EXPECT_EQ(scalar::pow(3, 5), 243);
  EXPECT_EQ(scalar::pow(-1, -3), -1);
  EXPECT_EQ(scalar::pow(2, -1), 0);
  EXPECT_EQ(scalar::sign<uint8_t>(200), 1);
  EXPECT_THROW(scalar::div(1, 0), Error);
  EXPECT_THROW(scalar::mod(1, 0), Error);
}

TEST(TileMeaning, EveryInstructionHasOneSomewhere) {
#define ORT_ALL(NAME) TileOp::NAME,
  for (const TileOp op : {ORT_TILE_OPS(ORT_ALL)}) {
    const bool moves = op == TileOp::load || op == TileOp::store;
    EXPECT_EQ(moves, !loop_function<double>(op) && !loop_function<int64_t>(op))
        << tile::name_of(op);
  }
}

}  // namespace
}  // namespace ort::cpu
