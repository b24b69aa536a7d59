// The provider's own products against loops, bit for bit: numbers are small integers, so sums are
// exact. Every vector target, strides, starts, packed matrices, and numbers of threads.
#include "providers/cpu/product/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <memory>
#include <random>
#include <vector>

#include "csrc/core/simd.h"
#include "hwy/highway.h"

namespace ort::cpu {
namespace {

struct Case {
  int64_t m, n, k, gap;  // numbers between rows that are no part of the matrix
  bool trans_a, trans_b, packed;
  int start;  // nothing, c, a row
};

template <class T>
std::vector<T> numbers(std::mt19937& rng, int64_t count) {
  std::vector<T> made(static_cast<size_t>(std::max<int64_t>(count, 0)));
  for (T& x : made) x = static_cast<T>(static_cast<int>(rng() % 17) - 8);
  return made;
}

// As many numbers as `rows` rows have, so that a sanitizer sees a read beyond them.
int64_t extent(int64_t rows, int64_t columns, int64_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + columns;
}

template <class T>
void check(const Case& c, unsigned seed) {
  std::mt19937 rng(seed);
  const int64_t a_row = (c.trans_a ? c.m : c.k) + c.gap, b_row = (c.trans_b ? c.k : c.n) + c.gap;
  const int64_t c_row = c.n + c.gap;
  const auto a = numbers<T>(rng, extent(c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k, a_row));
  const auto b = numbers<T>(rng, extent(c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n, b_row));
  auto y = numbers<T>(rng, extent(c.m, c.n, c_row));
  const auto bias = numbers<T>(rng, c.n);
  std::vector<T> want = y;
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      T sum{};
      for (int64_t p = 0; p < c.k; ++p)
        sum += a[static_cast<size_t>(c.trans_a ? p * a_row + i : i * a_row + p)] *
               b[static_cast<size_t>(c.trans_b ? j * b_row + p : p * b_row + j)];
      T& at = want[static_cast<size_t>(i * c_row + j)];
      at = sum * 2 + (c.start == 0 ? T{} : c.start == 1 ? at : bias[static_cast<size_t>(j)]);
    }
  Gemm<T> g{
      c.m,      c.n,   c.k, stored(a.data(), a_row, c.trans_a), stored(b.data(), b_row, c.trans_b),
      y.data(), c_row, T{2}};
  if (c.start == 1) g.start = y.data(), g.start_row = c_row;
  if (c.start == 2) g.start = bias.data();
  std::unique_ptr<T, void (*)(void*)> memory(nullptr, std::free);
  if constexpr (std::is_floating_point_v<T>)
    if (c.packed) {
      const auto bytes = static_cast<size_t>(packed_count<T>(c.k, c.n)) * sizeof(T);
      memory.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      pack(c.k, c.n, g.b, memory.get());
      auto back = b;
      for (int64_t i = 0; i < c.k * c.n; ++i)
        back[static_cast<size_t>(i / c.n * g.b.row + i % c.n * g.b.column)] = T{-99};
      unpack(c.k, c.n, memory.get(), back.data(), g.b.row, g.b.column);
      ASSERT_EQ(back, b);
      g.packed = memory.get();
      g.b.data = nullptr;
    }
  gemm(g);
  ASSERT_EQ(y, want) << c.m << " " << c.n << " " << c.k << " gap " << c.gap << " " << c.trans_a
                     << c.trans_b << " packed " << c.packed << " start " << c.start;
}

TEST(Gemm, EveryTargetGivesTheLoopsResult) {
  const std::vector<int64_t> rows{1, 2, 4, 5, 8, 9, 40, 67}, columns{1, 7, 16, 17, 49, 100, 257},
      depths{0, 1, 3, 33, 130, 1025};
  for (const int64_t target : {int64_t{0}, int64_t{HWY_AVX2 | HWY_SSSE3}, int64_t{HWY_SSSE3}}) {
    hwy::SetSupportedTargetsForTest(static_cast<uint32_t>(target));
    unsigned seed = 0;
    for (const int64_t m : rows)
      for (const int64_t n : columns)
        for (const int64_t k : depths) {
          const unsigned bits = ++seed * 2654435761u >> 20;
          const Case c{m,
                       n,
                       k,
                       bits % 3 == 0 ? 5 : 0,
                       (bits & 8) != 0,
                       (bits & 16) != 0,
                       k > 0 && (bits & 96) == 0,
                       static_cast<int>(bits >> 7) % 3};
          check<float>(c, seed);
          check<double>(c, seed);
          check<uint32_t>(c, seed);
        }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Gemm, ThreadsChangeNoBit) {
  struct Shape {
    int64_t m, n, k;
  };
  const int threads = omp_get_max_threads();
  for (const Shape& s : {Shape{300, 200, 700}, {1, 3000, 700}, {3, 3000, 600}, {3000, 8, 600}}) {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    std::vector<float> a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(s.k * s.n));
    for (float& x : a) x = normal(rng);
    for (float& x : b) x = normal(rng);
    for (const bool transposed : {false, true}) {
      std::vector<std::vector<float>> results;
      for (const int count : {1, 2, 5}) {
        omp_set_num_threads(count);
        std::vector<float> y(static_cast<size_t>(s.m * s.n));
        gemm({s.m, s.n, s.k, stored<float>(a.data(), s.k),
              stored<float>(b.data(), transposed ? s.k : s.n, transposed), y.data(), s.n});
        results.push_back(std::move(y));
      }
      EXPECT_EQ(results[0], results[1]);
      EXPECT_EQ(results[0], results[2]);
    }
  }
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace ort::cpu
