// Tile programs over rows of a few elements, where a call of an instruction for each row is the
// whole cost: an instruction then runs over all rows of a tile at once. What has one number for a
// row or for a column is written out to every element first; rows are reduced in one loop.
#pragma once

#include <algorithm>
#include <type_traits>

#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu::narrow_rows {

constexpr int64_t kColumns = 32;  // a row has fewer

// One number of each row, in every element of it.
template <class T>
void repeat_in_rows(const T* from, int64_t rows, int64_t cols, T* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) *to++ = from[r];
}

// A row, so many times.
template <class T>
void repeat_rows(const T* from, int64_t rows, int64_t cols, T* to) {
  std::copy_n(from, cols, to);
  for (int64_t done = cols; done < rows * cols; done *= 2)
    std::copy_n(to, std::min(done, rows * cols - done), to + done);
}

// Each row's sum, maximum or minimum as the instruction of one row has it; `a` and `b`: how far
// apart the rows of its operands are.
template <class T>
void reduce_rows(TileOp op, const TileArgsOf<T>& t, int64_t rows, int64_t a, int64_t b) {
  using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
  const bool one = t.variant & 1, other = t.variant & 2;
  const auto each = [&](Sum start, Sum scale, auto combine) {
    for (int64_t r = 0; r < rows; ++r) {
      const T *x = t.a + r * a, *y = t.b ? t.b + r * b : x;
      Sum result = start;
      for (int64_t c = 0; c < t.count; ++c)
        result = combine(result, x[one ? 0 : c], y[other ? 0 : c]);
      t.dst[r] = static_cast<T>(result * scale);
    }
  };
  const Sum lowest = tile::scalar::kLowest<T>;
  switch (op) {
    case TileOp::row_sum:
      return each(0, t.p, [](Sum sum, T x, T) { return sum + x; });
    case TileOp::row_dot:
      return each(0, t.p, [](Sum sum, T x, T y) { return sum + static_cast<T>(x * y); });
    case TileOp::row_max:
      return each(lowest, 1, [](Sum most, T x, T) { return tile::scalar::max<Sum>(most, x); });
    default:
      return each(-lowest, 1, [](Sum least, T x, T) { return tile::scalar::min<Sum>(least, x); });
  }
}

}  // namespace ort::cpu::narrow_rows
