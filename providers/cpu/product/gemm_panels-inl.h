// The packing of gemm.cpp, once for each vector target: panels of b and of a, as tiles read them.
#if defined(ORT_GEMM_PANELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_GEMM_PANELS_INL
#undef ORT_GEMM_PANELS_INL
#else
#define ORT_GEMM_PANELS_INL
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "providers/cpu/product/gemm.h"
#include "providers/cpu/some_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using D = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<D<T>>;
template <class T>
constexpr int64_t kLanes = hn::MaxLanes(D<T>());

// A tile of c has at most so many rows and vectors: 24 of 32 registers, or 12 of 16.
constexpr int64_t kRows = HWY_MAX_BYTES >= 64 ? 8 : 4;
constexpr int64_t kVectors = 3;
// Where c is no wider than one vector. Rows that lie side by side share the lines of the cache.
constexpr int64_t thin_rows(bool across) {
  return across ? 2 * kRows : 8;
}

// --- panels of b ---

// Vectors of columns side by side in panels, all about equally wide.
struct Panels {
  int64_t vectors, count;
  Panels(int64_t columns, int64_t lanes)
      : vectors((columns + lanes - 1) / lanes), count((vectors + kVectors - 1) / kVectors) {}
  int64_t begin(int64_t panel) const { return vectors * panel / count; }
  int64_t width(int64_t panel) const { return begin(panel + 1) - begin(panel); }
};

// Rows that are copied panel by panel, so that neither reading nor writing jumps at each row.
constexpr int64_t kRowsAtOnce = 8;

// Columns of 16 bytes of each of kLanes rows, as rows: the q-th goes to to[q * stride].
template <class T>
HWY_INLINE void transpose(const T* from, int64_t row, T* to, int64_t stride) {
  constexpr int64_t kColumns = 16 / sizeof(T), kBlocks = kLanes<T> / kColumns;
  const D<T> d;
  const hn::Full128<T> block;
  Vec<T> x[kColumns];
  HWY_UNROLL(4)
  for (int64_t i = 0; i < kColumns; ++i) {
    const auto at = [&](int64_t b)
                        HWY_ATTR { return hn::LoadU(block, from + (b * kColumns + i) * row); };
    if constexpr (kBlocks == 1) {
      x[i] = at(0);
    } else if constexpr (kBlocks == 2) {
      x[i] = hn::Combine(d, at(1), at(0));
    } else {
      const hn::Half<D<T>> half;
      x[i] = hn::Combine(d, hn::Combine(half, at(3), at(2)), hn::Combine(half, at(1), at(0)));
    }
  }
  if constexpr (kColumns == 2) {
    hn::StoreU(hn::InterleaveLower(d, x[0], x[1]), d, to);
    hn::StoreU(hn::InterleaveUpper(d, x[0], x[1]), d, to + stride);
  } else {
    const hn::RepartitionToWide<D<T>> pair;
    const auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, x[0], x[1]));
    const auto high01 = hn::BitCast(pair, hn::InterleaveUpper(d, x[0], x[1]));
    const auto low23 = hn::BitCast(pair, hn::InterleaveLower(d, x[2], x[3]));
    const auto high23 = hn::BitCast(pair, hn::InterleaveUpper(d, x[2], x[3]));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23)), d, to + stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, high01, high23)), d, to + 2 * stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, high01, high23)), d, to + 3 * stride);
  }
}

// `columns` of k rows that lie in memory as rows, as panels [first, last).
template <class T>
void pack_rows(const Matrix<T>& b, int64_t columns, int64_t k, const Panels& panels, int64_t first,
               int64_t last, T* to) {
  constexpr int64_t L = kLanes<T>;
  const D<T> d;
  const int64_t origin = panels.begin(first);
  for (int64_t p = 0; p < k; p += kRowsAtOnce)
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t begin = panels.begin(panel), width = panels.width(panel);
      T* at = to + (begin - origin) * L * k + p * width * L;
      for (int64_t q = p; q < std::min(p + kRowsAtOnce, k); ++q)
        for (int64_t v = begin; v < begin + width; ++v, at += L) {
          const T* from = b.data + q * b.row + v * L;
          __builtin_prefetch(from + kRowsAtOnce * b.row);
          hn::StoreU(load_some(from, columns - v * L), d, at);
        }
    }
}

// The same of a matrix that lies in memory as columns.
template <class T>
void pack_columns(const Matrix<T>& b, int64_t columns, int64_t k, const Panels& panels,
                  int64_t first, int64_t last, T* to) {
  constexpr int64_t L = kLanes<T>, kAtOnce = 16 / sizeof(T);
  const int64_t origin = panels.begin(first);
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t begin = panels.begin(panel), width = panels.width(panel);
    for (int64_t v = 0; v < width; ++v) {
      const int64_t column = (begin + v) * L, there = std::min(L, columns - column);
      const T* from = b.data + column * b.column;
      T* at = to + (begin - origin) * L * k + v * L;
      int64_t p = 0;
      if (there == L)
        for (; p + kAtOnce <= k; p += kAtOnce)
          transpose(from + p, b.column, at + p * width * L, width * L);
      for (; p < k; ++p)
        for (int64_t j = 0; j < L; ++j)
          at[p * width * L + j] = j < there ? from[j * b.column + p] : T{};
    }
  }
}

template <class T>
void pack_panels(const Matrix<T>& b, int64_t columns, int64_t k, const Panels& panels,
                 int64_t first, int64_t last, T* to) {
  (b.column == 1 ? pack_rows<T> : pack_columns<T>)(b, columns, k, panels, first, last, to);
}

// Rows of a that lie in memory as columns, as panels of kRows: panel, k, row.
template <class T>
void pack_a(const Matrix<T>& a, int64_t rows, int64_t k, T* to) {
  for (int64_t p = 0; p < k; p += kRowsAtOnce) {
    const int64_t end = std::min(p + kRowsAtOnce, k);
    for (int64_t i = 0; i < rows; i += kRows) {
      T* at = to + i * k + p * kRows;
      for (int64_t q = p; q < end; ++q, at += kRows) {
        const T* from = a.data + i + q * a.column;
        __builtin_prefetch(from + kRowsAtOnce * a.column);
        if (i + kRows <= rows)
          std::memcpy(at, from, kRows * sizeof(T));
        else
          std::copy_n(from, rows - i, at);
      }
    }
  }
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
