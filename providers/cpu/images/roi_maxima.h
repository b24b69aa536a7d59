// The largest weighted corner of each bin of RoiAlign: a vector's worth of channels at a time, as
// another place is the largest in each.
#pragma once

#include "providers/roi.h"

namespace ort::cpu {

// A region over maps of `width` columns and `plane` elements, one a channel. A bin without samples
// is 0. The first of equal corners counts, and a NaN is larger than any number.
template <class T>
struct RoiMaxima {
  // Of a sample: where its two neighbours are among `places`.
  struct Column {
    int64_t left, right;
    double by_left, by_right;
  };

  const RoiAxis& rows;
  int64_t width, plane;
  std::vector<int64_t> places;  // the columns that samples read, once each
  std::vector<std::vector<Column>> columns;

  RoiMaxima(const RoiAxis& rows, const RoiAxis& columns, int64_t width, int64_t plane);
  int64_t bins() const { return static_cast<int64_t>(rows.bins.size() * columns.size()); }
  // y [channels, bins] of x [channels, plane].
  void take(const T* x, int64_t channels, T* y) const;
  // dx [channels, plane] += what each bin's dy is to the place that was taken.
  void scatter(const T* x, const T* dy, int64_t channels, T* dx) const;
};

}  // namespace ort::cpu
