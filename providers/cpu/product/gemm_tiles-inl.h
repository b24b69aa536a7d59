// The innermost loops of gemm.cpp, once for each vector target: tiles of c that stay in registers;
// dot products and sums of rows where c has few rows.
#if defined(ORT_GEMM_TILES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_GEMM_TILES_INL
#undef ORT_GEMM_TILES_INL
#else
#define ORT_GEMM_TILES_INL
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "providers/cpu/product/gemm_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

template <class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>())
    return hn::MulAdd(a, b, c);
  else
    return hn::Add(hn::Mul(a, b), c);
}

template <class T>
struct Tile {
  int64_t k;
  Matrix<T> a;
  const T* b;
  int64_t b_row;
  T alpha;
  const T* start;  // null: zeros
  int64_t start_row;
  T* c;
  int64_t c_row;
  int64_t last;  // lanes of the last vector that are there
};

template <class T, int64_t kTall, int64_t kWide>
HWY_INLINE void store(const Tile<T>& t, const Vec<T> (&sum)[kTall][kWide]) {
  constexpr int64_t L = kLanes<T>;
  const D<T> d;
  const Vec<T> alpha = hn::Set(d, t.alpha);
  const auto each = [&](auto&& f) HWY_ATTR {
    HWY_UNROLL(16)
    for (int64_t r = 0; r < kTall; ++r) {
      HWY_UNROLL(16)
      for (int64_t v = 0; v < kWide; ++v)
        f(sum[r][v], t.start + r * t.start_row + v * L, t.c + r * t.c_row + v * L, v);
    }
  };
  if (t.last == L && t.start)
    each([&](Vec<T> x, const T* start, T* to, int64_t)
             HWY_ATTR { hn::StoreU(multiply_add(alpha, x, hn::LoadU(d, start)), d, to); });
  else if (t.last == L)
    each([&](Vec<T> x, const T*, T* to, int64_t)
             HWY_ATTR { hn::StoreU(hn::Mul(alpha, x), d, to); });
  else
    each([&](Vec<T> x, const T* start, T* to, int64_t v) HWY_ATTR {
      const int64_t there = v + 1 < kWide ? L : t.last;
      const Vec<T> old = t.start ? load_some(start, there) : hn::Zero(d);
      hn::BlendedStore(multiply_add(alpha, x, old), hn::FirstN(d, static_cast<size_t>(there)), d,
                       to);
    });
}

// A tile is done before the next rows of b have come from memory, unless they were asked for.
constexpr int64_t kAhead = 16;  // rows of b

// kAcross: a's rows follow each other, kRows apart or so at each step of k; else each is a run.
template <class T, int64_t kTall, int64_t kWide, bool kAcross>
HWY_NOINLINE void add_tile(const Tile<T>& t) {
  constexpr int64_t L = kLanes<T>;
  const D<T> d;
  Vec<T> sum[kTall][kWide];
  HWY_UNROLL(16)
  for (auto& row : sum) HWY_UNROLL(16)
  for (auto& v : row) v = hn::Zero(d);
  if (t.k >= 64)
    for (int64_t r = 0; r < kTall; ++r)
      for (int64_t v = 0; v < kWide; ++v) __builtin_prefetch(t.c + r * t.c_row + v * L, 1);
  const T *a = t.a.data, *b = t.b;
  const int64_t a_row = t.a.row, a_column = t.a.column, b_row = t.b_row;
  for (int64_t p = 0; p < t.k; ++p) {
    Vec<T> right[kWide];
    HWY_UNROLL(16)
    for (int64_t v = 0; v < kWide; ++v) {
      __builtin_prefetch(b + kAhead * b_row + v * L);
      right[v] = hn::LoadU(d, b + v * L);
    }
    HWY_UNROLL(16)
    for (int64_t r = 0; r < kTall; ++r) {
      const Vec<T> left = hn::Set(d, kAcross ? a[r] : a[r * a_row]);
      HWY_UNROLL(16)
      for (int64_t v = 0; v < kWide; ++v) sum[r][v] = multiply_add(left, right[v], sum[r][v]);
    }
    a += kAcross ? a_column : 1;
    b += b_row;
  }
  store(t, sum);
}

template <class T, bool kAcross, int64_t kWide, int64_t kTall = kRows>
HWY_INLINE void add_rows(const Tile<T>& t, int64_t rows) {
  if (rows == kTall) return add_tile<T, kTall, kWide, kAcross>(t);
  if constexpr (kTall > 1) add_rows<T, kAcross, kWide, kTall - 1>(t, rows);
}

template <class T, bool kAcross>
HWY_INLINE void add_any(const Tile<T>& t, int64_t rows, int64_t vectors) {
  if (rows > kRows) return add_rows<T, kAcross, 1, thin_rows(kAcross)>(t, rows);
  if (vectors == 1) return add_rows<T, kAcross, 1>(t, rows);
  if (vectors == 2) return add_rows<T, kAcross, 2>(t, rows);
  add_rows<T, kAcross, 3>(t, rows);
}

// --- dot products: few rows by a matrix whose columns are runs, which is read once, as it lies ---

// The sums of the lanes of as many vectors as 16 bytes have numbers.
template <class T>
HWY_INLINE void sum_lanes(const Vec<T>* x, T* to) {
  const D<T> d;
  const hn::Half<D<T>> half;
  const hn::Full128<T> block;
  const auto pairs = [&](Vec<T> even, Vec<T> odd) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd));
  };
  Vec<T> sums = pairs(x[0], x[1]);
  if constexpr (sizeof(T) == 4) {
    const hn::RepartitionToWide<D<T>> wide;
    const auto low = hn::BitCast(wide, sums), high = hn::BitCast(wide, pairs(x[2], x[3]));
    sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, low, high)),
                   hn::BitCast(d, hn::InterleaveUpper(wide, low, high)));
  }
  if constexpr (kLanes<T> == 16 / sizeof(T)) {
    hn::StoreU(sums, block, to);
  } else {
    const auto halves = hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums));
    if constexpr (kLanes<T> == 32 / sizeof(T))
      hn::StoreU(halves, block, to);
    else
      hn::StoreU(hn::Add(hn::LowerHalf(block, halves), hn::UpperHalf(block, halves)), block, to);
  }
}

template <class T, int64_t kTall, int64_t kCount>
HWY_INLINE void dots(const Gemm<T>& g, int64_t j) {
  constexpr int64_t kAtOnce = 16 / sizeof(T);
  constexpr int64_t kFilled = (kTall * kCount + kAtOnce - 1) / kAtOnce * kAtOnce;
  const D<T> d;
  Vec<T> sum[kFilled];
  HWY_UNROLL(24)
  for (auto& v : sum) v = hn::Zero(d);
  const T *a = g.a.data, *b = g.b.data + j * g.b.column;
  const auto add = [&](int64_t p, auto load) HWY_ATTR {
    Vec<T> right[kCount];
    HWY_UNROLL(16)
    for (int64_t v = 0; v < kCount; ++v) {
      if (kTall > 1) __builtin_prefetch(b + (v + kCount) * g.b.column + p);
      right[v] = load(b + v * g.b.column + p);
    }
    HWY_UNROLL(16)
    for (int64_t r = 0; r < kTall; ++r) {
      const Vec<T> left = load(a + r * g.a.row + p);
      HWY_UNROLL(16)
      for (int64_t v = 0; v < kCount; ++v)
        sum[r * kCount + v] = multiply_add(left, right[v], sum[r * kCount + v]);
    }
  };
  const int64_t whole = g.k / kLanes<T> * kLanes<T>;
  for (int64_t p = 0; p < whole; p += kLanes<T>)
    add(p, [&](const T* from) HWY_ATTR { return hn::LoadU(d, from); });
  if (whole < g.k) add(whole, [&](const T* from) HWY_ATTR { return load_some(from, g.k - whole); });
  T total[kFilled];
  HWY_UNROLL(16)
  for (int64_t at = 0; at < kFilled; at += kAtOnce) sum_lanes(sum + at, total + at);
  for (int64_t r = 0; r < kTall; ++r)
    for (int64_t v = 0; v < kCount; ++v) {
      const T product = g.alpha * total[r * kCount + v];
      const T* start = g.start ? g.start + r * g.start_row + j + v : nullptr;
      g.c[r * g.c_row + j + v] = start ? *start + product : product;
    }
}

// c's columns [j0, j1).
template <class T, int64_t kTall = kRows>
void all_dots(const Gemm<T>& g, int64_t j0, int64_t j1) {
  if (g.m < kTall) {
    if constexpr (kTall > 1) all_dots<T, kTall - 1>(g, j0, j1);
    return;
  }
  constexpr int64_t kCount = kTall == 1 ? 8 : kTall == 2 ? 6 : kTall == 3 ? 4 : kVectors;
  for (; j0 + kCount <= j1; j0 += kCount) dots<T, kTall, kCount>(g, j0);
  for (; j0 < j1; ++j0) dots<T, kTall, 1>(g, j0);
}

// --- few rows by a matrix whose rows are runs, which is read once, in the order of memory ---

constexpr int64_t kStreamRows = 4;
constexpr int64_t kStreamColumns = 1024;  // of c, which stay in the first cache

// c's columns [j0, j1) += a's columns [p, p + count) by as many rows of b.
template <class T, int64_t kTall, int64_t kCount>
HWY_INLINE void add_streams(const Gemm<T>& g, int64_t p, int64_t j0, int64_t j1) {
  const D<T> d;
  Vec<T> left[kTall][kCount];
  HWY_UNROLL(16)
  for (int64_t r = 0; r < kTall; ++r) HWY_UNROLL(16)
  for (int64_t q = 0; q < kCount; ++q)
    left[r][q] = hn::Set(d, g.alpha * g.a.data[r * g.a.row + (p + q) * g.a.column]);
  const T* b = g.b.data + p * g.b.row;
  const auto add = [&](int64_t j, auto load, auto store) HWY_ATTR {
    Vec<T> right[kCount];
    HWY_UNROLL(16)
    for (int64_t q = 0; q < kCount; ++q) {
      if (kTall > 1) __builtin_prefetch(b + (q + kCount) * g.b.row + j);
      right[q] = load(b + q * g.b.row + j);
    }
    HWY_UNROLL(16)
    for (int64_t r = 0; r < kTall; ++r) {
      T* to = g.c + r * g.c_row + j;
      Vec<T> sum = load(to);
      HWY_UNROLL(16)
      for (int64_t q = 0; q < kCount; ++q) sum = multiply_add(left[r][q], right[q], sum);
      store(sum, to);
    }
  };
  int64_t j = j0;
  for (; j + kLanes<T> <= j1; j += kLanes<T>)
    add(
        j, [&](const T* from) HWY_ATTR { return hn::LoadU(d, from); },
        [&](Vec<T> x, T* to) HWY_ATTR { hn::StoreU(x, d, to); });
  if (j == j1) return;
  const auto there = hn::FirstN(d, static_cast<size_t>(j1 - j));
  add(
      j, [&](const T* from) HWY_ATTR { return load_some(from, j1 - j); },
      [&](Vec<T> x, T* to) HWY_ATTR { hn::BlendedStore(x, there, d, to); });
}

template <class T, int64_t kTall = kStreamRows>
void all_streams(const Gemm<T>& g, int64_t j0, int64_t j1) {
  if (g.m < kTall) {
    if constexpr (kTall > 1) all_streams<T, kTall - 1>(g, j0, j1);
    return;
  }
  for (int64_t j = j0; j < j1; j += kStreamColumns) {
    const int64_t end = std::min(j + kStreamColumns, j1);
    for (int64_t r = 0; r < kTall; ++r) {
      T* to = g.c + r * g.c_row;
      const T* start = g.start ? g.start + r * g.start_row : nullptr;
      if (!start)
        std::fill(to + j, to + end, T{});
      else if (start != to)
        std::copy(start + j, start + end, to + j);
    }
    constexpr int64_t kAtOnce = kTall == 1 ? 8 : 4;
    int64_t p = 0;
    for (; p + kAtOnce <= g.k; p += kAtOnce) add_streams<T, kTall, kAtOnce>(g, p, j, end);
    for (; p < g.k; ++p) add_streams<T, kTall, 1>(g, p, j, end);
  }
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
