// The blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (2008): a block of b is packed into panels that stay in the last cache, a block of a into panels
// in the second; a micro-kernel keeps a tile of c in registers. Written once with Highway.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/dgemm.cpp"
#include <algorithm>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "csrc/core/parallel.h"
#include "hwy/highway.h"
#include "providers/cpu/dgemm.h"

#ifndef ORT_DGEMM_BLOCKS
#define ORT_DGEMM_BLOCKS
namespace ort::cpu {
namespace {

constexpr int64_t kBlockM = 96, kBlockN = 1536, kBlockK = 256;
constexpr int64_t kMostRows = 8, kMostColumns = 24;  // of a tile, on any target

int64_t rounded_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace
}  // namespace ort::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
constexpr int64_t kLanes = hn::MaxLanes(D());
constexpr int64_t kVectors = 3;
constexpr int64_t kRows = kLanes >= 8 ? 8 : 4;  // 24 or 12 registers for the tile
constexpr int64_t kColumns = kVectors * kLanes;
static_assert(kRows <= kMostRows && kColumns <= kMostColumns);

// [rows, k] as panels of kRows rows: panel, k, row. What is missing is zero.
void pack_a(DoubleMatrix a, double alpha, int64_t rows, int64_t k, double* to) {
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t count = std::min(kRows, rows - i);
    for (int64_t p = 0; p < k; ++p, to += kRows)
      for (int64_t r = 0; r < kRows; ++r)
        to[r] = r < count ? alpha * a.data[(i + r) * a.row + p * a.column] : 0.0;
  }
}

// One panel of b, [k, columns]: k, column.
void pack_b(DoubleMatrix b, int64_t columns, int64_t k, double* to) {
  for (int64_t p = 0; p < k; ++p, to += kColumns) {
    const double* from = b.data + p * b.row;
    for (int64_t j = 0; j < kColumns; ++j) to[j] = j < columns ? from[j * b.column] : 0.0;
  }
}

// A tile of c, of which `rows` and `columns` are there.
HWY_INLINE void add_tile(const double* a, const double* b, int64_t k, double* c, int64_t stride,
                         int64_t rows, int64_t columns) {
  const D d;
  hn::Vec<D> sum[kRows][kVectors];
  HWY_UNROLL(8)
  for (auto& row : sum)
    HWY_UNROLL(8)
    for (auto& v : row) v = hn::Zero(d);
  for (int64_t p = 0; p < k; ++p, a += kRows, b += kColumns) {
    hn::Vec<D> right[kVectors];
    HWY_UNROLL(8)
    for (int64_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(8)
    for (int64_t r = 0; r < kRows; ++r) {
      const auto left = hn::Set(d, a[r]);
      HWY_UNROLL(8)
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  if (rows == kRows && columns == kColumns) {
    HWY_UNROLL(8)
    for (int64_t r = 0; r < kRows; ++r)
      HWY_UNROLL(8)
      for (int64_t v = 0; v < kVectors; ++v) {
        double* at = c + r * stride + v * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(d, at), sum[r][v]), d, at);
      }
    return;
  }
  double tile[kRows * kColumns];
  HWY_UNROLL(8)
  for (int64_t r = 0; r < kRows; ++r)
    HWY_UNROLL(8)
    for (int64_t v = 0; v < kVectors; ++v)
      hn::StoreU(sum[r][v], d, tile + r * kColumns + v * kLanes);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) c[r * stride + j] += tile[r * kColumns + j];
}

// A block of a, packed, times a block of b, packed.
void add_block(const double* a, const double* b, int64_t m, int64_t n, int64_t k, double* c,
               int64_t stride) {
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t i = 0; i < m; i += kRows)
      add_tile(a + i * k, b + j * k, k, c + i * stride + j, stride, std::min(kRows, m - i),
               std::min(kColumns, n - j));
}

void dgemm(int64_t m, int64_t n, int64_t k, double alpha, DoubleMatrix a, DoubleMatrix b, double* c,
           int threads, void* scratch) {
  auto* b_panels = static_cast<double*>(scratch);
  double* a_panels =
      b_panels + rounded_up(std::min(n, kBlockN), kMostColumns) * std::min(k, kBlockK);
  const int64_t a_size = kBlockM * std::min(k, kBlockK), stride = n;
  for (int64_t j = 0; j < n; j += kBlockN)
    for (int64_t p = 0; p < k; p += kBlockK) {
      const int64_t columns = std::min(kBlockN, n - j), depth = std::min(kBlockK, k - p);
      const int64_t panels = (columns + kColumns - 1) / kColumns;
      parallel_for(
          panels, columns * depth,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t panel = begin; panel < end; ++panel) {
              const int64_t at = panel * kColumns;
              pack_b({b.data + p * b.row + (j + at) * b.column, b.row, b.column},
                     std::min(kColumns, columns - at), depth, b_panels + at * depth);
            }
          },
          threads);
      parallel_for(
          (m + kBlockM - 1) / kBlockM, m * columns * depth / 4,
          [&](int64_t begin, int64_t end, int thread) {
            double* own = a_panels + thread * a_size;
            for (int64_t i = begin * kBlockM; i < std::min(end * kBlockM, m); i += kBlockM) {
              const int64_t rows = std::min(kBlockM, m - i);
              pack_a({a.data + i * a.row + p * a.column, a.row, a.column}, alpha, rows, depth, own);
              add_block(own, b_panels, rows, columns, depth, c + i * stride + j, stride);
            }
          },
          threads);
    }
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(dgemm);

size_t dgemm_scratch(int64_t m, int64_t n, int64_t k, int threads) {
  const int64_t depth = std::min(k, kBlockK);
  const int64_t blocks = std::min<int64_t>(threads, (m + kBlockM - 1) / kBlockM);
  const int64_t b = rounded_up(std::min(n, kBlockN), kMostColumns) * depth;
  return static_cast<size_t>(b + blocks * kBlockM * depth) * sizeof(double);
}

void dgemm(int64_t m, int64_t n, int64_t k, double alpha, DoubleMatrix a, DoubleMatrix b, double* c,
           int threads, void* scratch) {
  HWY_DYNAMIC_DISPATCH(dgemm)(m, n, k, alpha, a, b, c, threads, scratch);
}

}  // namespace ort::cpu
#endif
