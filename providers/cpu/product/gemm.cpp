// The blocking of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (2008): a block of b is packed into panels that stay in the second cache, a few rows of a stay in
// the first; a tile of c is kept in registers. Each thread has a rectangle of c and packs for
// itself. What is too small to be worth packing is read where it lies.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/product/gemm.cpp"
#include <algorithm>
#include <utility>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "csrc/core/parallel.h"
#include "csrc/core/pool.h"
#include "hwy/highway.h"
#include "providers/cpu/product/gemm.h"
#include "providers/cpu/product/gemm_panels-inl.h"
#include "providers/cpu/product/gemm_tiles-inl.h"

#ifndef ORT_GEMM_BLOCKS
#define ORT_GEMM_BLOCKS
namespace ort::cpu {
namespace {

constexpr int64_t kBlockK = 512, kBlockM = 128;
constexpr int64_t kBlockBytes = 768 << 10;  // of b, packed
// A small product is done before a second thread has woken up, and on a busy machine the wait for
// that thread is the whole cost.
constexpr int64_t kSmallProduct = 1 << 20;

// Memory of this thread, which it keeps for the next product; much of it is a huge page.
template <class T>
T* packing_memory(int64_t count) {
  constexpr size_t kMuch = 512 << 10, kHugePage = 2 << 20;
  thread_local Block memory;
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (memory.bytes() < bytes) {
    memory = Block();
    memory = Block(bytes < kMuch ? bytes : std::max(bytes, kHugePage));
  }
  return reinterpret_cast<T*>(memory.data());
}

}  // namespace
}  // namespace ort::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Part `index` of `parts` of [0, count), cut at whole units.
Range part_of(int64_t count, int64_t unit, int64_t index, int64_t parts) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(units * index / parts * unit, count),
          std::min(units * (index + 1) / parts * unit, count)};
}

// One thread's rectangle of c by tiles: rows, and panels of columns.
template <class T>
class Rectangle {
 public:
  Rectangle(const Gemm<T>& g, Range rows, Range panels)
      : g_(g),
        rows_(rows),
        all_(panels),
        panels_(g.n, L),
        across_(g.a.column != 1),
        step_(panels_.vectors == 1 ? thin_rows(across_) : kRows),
        // Where a is read often enough, or its lines share the sets of a cache.
        packs_a_(across_ && panels_.vectors > 1 &&
                 (panels.size() * kVectors * L > kFewColumns || g.a.column * kBytes % 4096 == 0)),
        packs_b_(!g.packed &&
                 (g.b.column != 1 || (rows.size() > kFewRows && g.b.row * g.k > kInPlace))) {}

  void run() {
    const int64_t depth = std::min(g_.k, kBlockK);
    const int64_t most = std::max<int64_t>(kBlockBytes / (depth * kVectors * L * kBytes), 1);
    const int64_t blocks = (all_.size() + most - 1) / most;
    const int64_t b_size = std::min(all_.size(), most) * kVectors * L * depth;
    b_ = packing_memory<T>(b_size + (packs_a_ ? kBlockM * depth : 0));
    a_ = b_ + b_size;
    for (int64_t block = 0; block < blocks; ++block) {
      block_ = {all_.begin + all_.size() * block / blocks,
                all_.begin + all_.size() * (block + 1) / blocks};
      for (p_ = 0; p_ < g_.k; p_ += kBlockK) {
        k_ = std::min(kBlockK, g_.k - p_);
        pack_block();
        for (int64_t i = rows_.begin; i < rows_.end; i += kBlockM)
          add_block(i, std::min(kBlockM, rows_.end - i));
      }
    }
  }

 private:
  static constexpr int64_t L = kLanes<T>, kBytes = sizeof(T);
  static constexpr int64_t kFewRows = 64, kFewColumns = 96;
  static constexpr int64_t kInPlace = 1 << 14;  // elements of b that need no packing

  // What of the block is not read in place; a last vector that is not whole never is.
  void pack_block() {
    const int64_t last = block_.end - 1;
    const bool whole = block_.end < panels_.count || g_.n % L == 0;
    packed_ = g_.packed || packs_b_ ? block_.begin : whole ? block_.end : last;
    if (g_.packed || packed_ == block_.end) return;
    const Matrix<T> b{g_.b.data + p_ * g_.b.row, g_.b.row, g_.b.column};
    pack_panels(b, g_.n, k_, panels_, packed_, block_.end, b_);
  }

  void add_block(int64_t i0, int64_t rows) {
    Matrix<T> a{g_.a.data + i0 * g_.a.row + p_ * g_.a.column, g_.a.row, g_.a.column};
    if (packs_a_) {
      pack_a(a, rows, k_, a_);
      a = {a_, k_, kRows};
    }
    for (int64_t i = 0; i < rows; i += step_)
      for (int64_t panel = block_.begin; panel < block_.end; ++panel)
        add(i0 + i, std::min(step_, rows - i), panel, {a.data + i * a.row, a.row, a.column});
  }

  void add(int64_t i, int64_t rows, int64_t panel, const Matrix<T>& a) const {
    const int64_t begin = panels_.begin(panel), width = panels_.width(panel), column = begin * L;
    const T* b = g_.b.data + p_ * g_.b.row + column;
    int64_t b_row = g_.b.row;
    if (panel >= packed_) {
      b_row = width * L;
      b = g_.packed ? g_.packed + p_ * panels_.vectors * L + column * k_
                    : b_ + (column - panels_.begin(packed_) * L) * k_;
    }
    const bool first = p_ == 0;
    const T* start = first ? g_.start : g_.c;
    const int64_t start_row = first ? g_.start_row : g_.c_row;
    const Tile<T> tile{k_,        a,
                       b,         b_row,
                       g_.alpha,  start ? start + i * start_row + column : nullptr,
                       start_row, g_.c + i * g_.c_row + column,
                       g_.c_row,  std::min(g_.n - column - (width - 1) * L, L)};
    across_ ? add_any<T, true>(tile, rows, width) : add_any<T, false>(tile, rows, width);
  }

  const Gemm<T>& g_;
  Range rows_, all_;
  Panels panels_;
  bool across_;
  int64_t step_;  // rows of a tile
  bool packs_a_, packs_b_;
  T *a_ = nullptr, *b_ = nullptr;  // packed
  Range block_{};                  // of panels
  int64_t p_ = 0, k_ = 0;          // of the block
  int64_t packed_ = 0;             // the first panel of the block that is packed
};

// How the threads share c: so that the largest share, with the packing that comes with its
// columns, is smallest.
struct Grid {
  int64_t rows = 1, columns = 1;
  Grid(int64_t tiles, int64_t panels, int64_t threads) {
    int64_t least = 0;
    for (int64_t r = 1; r <= std::min(threads, tiles); ++r) {
      const int64_t c = std::min(threads / r, panels);
      const int64_t cost = ((tiles + r - 1) / r + 1) * ((panels + c - 1) / c);
      if (least != 0 && cost >= least) continue;
      least = cost;
      rows = r;
      columns = c;
    }
  }
};

// f(part) on so many threads.
template <class F>
void on_threads(int64_t threads, F f) {
  parallel_for(threads, threads * kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) f(part);
  });
}

template <class T>
void by_tiles(const Gemm<T>& g, int64_t threads) {
  const int64_t panels = Panels(g.n, kLanes<T>).count;
  const Grid grid((g.m + kRows - 1) / kRows, panels, threads);
  on_threads(grid.rows * grid.columns, [&](int64_t at) {
    const Range rows = part_of(g.m, kRows, at / grid.columns, grid.rows);
    Rectangle<T>(g, rows, part_of(panels, 1, at % grid.columns, grid.columns)).run();
  });
}

// Which way depends on the whole product, so sums are taken in one order for any number of threads.
template <class T>
void multiply(const Gemm<T>& g, int64_t threads) {
  const int64_t parts = std::min(threads, (g.n + 63) / 64);
  if (!g.packed && g.m <= kRows && g.b.row == 1 && g.a.column == 1)
    on_threads(parts, [&](int64_t at) {
      const Range columns = part_of(g.n, 16, at, parts);
      all_dots(g, columns.begin, columns.end);
    });
  else if (!g.packed && g.m <= kStreamRows && g.b.column == 1)
    on_threads(parts, [&](int64_t at) {
      const Range columns = part_of(g.n, 16, at, parts);
      all_streams(g, columns.begin, columns.end);
    });
  else
    by_tiles(g, threads);
}

void multiply_float(const Gemm<float>& g, int64_t threads) {
  multiply(g, threads);
}
void multiply_double(const Gemm<double>& g, int64_t threads) {
  multiply(g, threads);
}
void multiply_uint32(const Gemm<uint32_t>& g, int64_t threads) {
  multiply(g, threads);
}

template <class T>
void pack_whole(int64_t k, int64_t n, const Matrix<T>& b, T* to) {
  const Panels panels(n, kLanes<T>);
  for (int64_t p = 0; p < k; p += kBlockK) {
    const int64_t depth = std::min(kBlockK, k - p);
    pack_panels(Matrix<T>{b.data + p * b.row, b.row, b.column}, n, depth, panels, 0, panels.count,
                to + p * panels.vectors * kLanes<T>);
  }
}

void pack_float(int64_t k, int64_t n, const Matrix<float>& b, float* to) {
  pack_whole(k, n, b, to);
}
void pack_double(int64_t k, int64_t n, const Matrix<double>& b, double* to) {
  pack_whole(k, n, b, to);
}

template <class T>
void unpack_whole(int64_t k, int64_t n, const T* packed, T* b, int64_t row, int64_t column) {
  constexpr int64_t L = kLanes<T>;
  const Panels panels(n, L);
  for (int64_t p0 = 0; p0 < k; p0 += kBlockK)
    for (int64_t panel = 0; panel < panels.count; ++panel)
      for (int64_t p = p0; p < std::min(p0 + kBlockK, k); ++p) {
        const int64_t first = panels.begin(panel) * L, width = panels.width(panel) * L;
        for (int64_t j = first; j < std::min(first + width, n); ++j)
          b[p * row + j * column] = packed[j - first];
        packed += width;
      }
}

void unpack_float(int64_t k, int64_t n, const float* packed, float* b, int64_t row,
                  int64_t column) {
  unpack_whole(k, n, packed, b, row, column);
}
void unpack_double(int64_t k, int64_t n, const double* packed, double* b, int64_t row,
                   int64_t column) {
  unpack_whole(k, n, packed, b, row, column);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(multiply_float);
HWY_EXPORT(multiply_double);
HWY_EXPORT(multiply_uint32);
HWY_EXPORT(pack_float);
HWY_EXPORT(pack_double);
HWY_EXPORT(unpack_float);
HWY_EXPORT(unpack_double);

namespace {

template <class T>
void copy_start(const Gemm<T>& g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j)
      g.c[i * g.c_row + j] = g.start ? g.start[i * g.start_row + j] : T{};
}

template <class T, class Multiply>
void run(Gemm<T> g, Multiply multiply) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return copy_start(g);
  if (g.n == 1 && g.c_row == 1 && !g.packed) {  // a column is a row: vectors then lie along it
    if (g.start && g.start != g.c) {
      copy_start(g);
      g.start = g.c;
    }
    std::swap(g.m, g.n);
    g = {
        g.m, g.n,     g.k,    {g.b.data, g.b.column, g.b.row}, {g.a.data, g.a.column, g.a.row}, g.c,
        g.n, g.alpha, g.start};
  }
  const bool alone = g.m * g.n * g.k < kSmallProduct || omp_in_parallel();
  multiply(g, alone ? 1 : omp_get_max_threads());
}

}  // namespace

void gemm(const Gemm<float>& g) {
  run(g, HWY_DYNAMIC_DISPATCH(multiply_float));
}
void gemm(const Gemm<double>& g) {
  run(g, HWY_DYNAMIC_DISPATCH(multiply_double));
}
void gemm(const Gemm<uint32_t>& g) {
  run(g, HWY_DYNAMIC_DISPATCH(multiply_uint32));
}
void pack(int64_t k, int64_t n, const Matrix<float>& b, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_float)(k, n, b, to);
}
void pack(int64_t k, int64_t n, const Matrix<double>& b, double* to) {
  HWY_DYNAMIC_DISPATCH(pack_double)(k, n, b, to);
}
void unpack(int64_t k, int64_t n, const float* packed, float* b, int64_t row, int64_t column) {
  HWY_DYNAMIC_DISPATCH(unpack_float)(k, n, packed, b, row, column);
}
void unpack(int64_t k, int64_t n, const double* packed, double* b, int64_t row, int64_t column) {
  HWY_DYNAMIC_DISPATCH(unpack_double)(k, n, packed, b, row, column);
}

}  // namespace ort::cpu
#endif
