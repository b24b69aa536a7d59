// Values that change along one axis, [outer, in, inner] to [outer, out, inner]: a pass of Resize.
#pragma once

#include "providers/resize.h"

namespace ort::cpu {

template <class T>
struct ResizePass {
  int64_t outer, in, out, inner;
  std::vector<int64_t> first, begin;  // as of an AxisMap
  std::vector<T> weights;
  // Along lines the longest run of positions that have most taps, where these are few: in vectors,
  // by [taps, out] weights and places.
  int64_t taps = 0, even_begin = 0, even_end = 0;
  std::vector<T> line_weights;
  std::vector<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>> line_places;

  ResizePass(const AxisMap& map, int64_t outer, int64_t inner);
  // What can be made apart from the rest: rows of `inner` numbers, or lines of the axis.
  int64_t rows() const { return inner > 1 ? outer * out : outer; }
  int64_t work() const { return (outer * static_cast<int64_t>(weights.size()) * inner) / 4; }
  void run(const T* x, T* y, int64_t begin_row, int64_t end_row) const;

 private:
  void find_even(const AxisMap& map);
};

}  // namespace ort::cpu
