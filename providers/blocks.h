// Where blocks of an image lie among the columns that are made of them; kernels of providers share
// it.
#pragma once

#include <algorithm>

#include "providers/kernel_table.h"

namespace ort {

class ImageBlocks {
 public:
  ImageBlocks(const Attrs& attrs, Sizes image, Sizes block)
      : image_(std::move(image)), block_(std::move(block)), strides_(strides_of(image_)) {
    const size_t n = image_.size();
    const auto ints = [&](std::string_view name, int64_t otherwise) {
      const bool given = attrs.has(name) && !attrs.ints(name).empty();
      return given ? attrs.ints(name) : Sizes(name == "pads" ? 2 * n : n, otherwise);
    };
    steps_ = ints("strides", 1);
    dilations_ = ints("dilations", 1);
    pads_ = ints("pads", 0);
    for (size_t i = 0; i < n; ++i) {
      const int64_t reach = dilations_[i] * (block_[i] - 1) + 1;
      const int64_t room = image_[i] + pads_[i] + pads_[n + i] - reach;
      counts_.push_back(room < 0 ? 0 : room / steps_[i] + 1);
    }
  }
  int64_t plane() const { return element_count(image_); }
  int64_t rows() const { return element_count(block_); }
  int64_t columns() const { return element_count(counts_); }

  // Calls f(place among a channel's columns, place in its plane, count, step in the plane) for runs
  // along the last axis that lie in the image.
  template <class F>
  void each_run(F f) const {
    const size_t n = image_.size(), last = n - 1;
    if (columns() == 0 || plane() == 0) return;
    for (int64_t k = 0; k < rows(); ++k) {
      const Sizes at = index_of(k, block_);
      const int64_t shift = at[last] * dilations_[last] - pads_[last], step = steps_[last];
      const int64_t begin = shift < 0 ? (-shift + step - 1) / step : 0;
      const int64_t room = image_[last] - shift;
      const int64_t end = std::min(counts_[last], room <= 0 ? 0 : (room - 1) / step + 1);
      if (begin >= end) continue;
      const int64_t outer = columns() / counts_[last];
      for (int64_t row = 0; row < outer; ++row) {
        const int64_t from = row_of(row, at);
        if (from < 0) continue;
        f(k * columns() + row * counts_[last] + begin, from + shift + begin * step, end - begin,
          step);
      }
    }
  }

 private:
  static Sizes index_of(int64_t flat, const Sizes& sizes) {
    Sizes index(sizes.size(), 0);
    for (size_t d = sizes.size(); d-- > 0; flat /= sizes[d]) index[d] = flat % sizes[d];
    return index;
  }
  // Where a row of blocks begins in the plane for a position of them; -1: in the padding.
  int64_t row_of(int64_t row, const Sizes& at) const {
    int64_t from = 0;
    for (size_t d = image_.size() - 1; d-- > 0; row /= counts_[d]) {
      const int64_t place = row % counts_[d] * steps_[d] + at[d] * dilations_[d] - pads_[d];
      if (place < 0 || place >= image_[d]) return -1;
      from += place * strides_[d];
    }
    return from;
  }

  Sizes image_, block_, strides_, steps_, dilations_, pads_, counts_;
};

}  // namespace ort
