// Where regions of interest are sampled: what kernels of providers share. Boxes are a user's
// numbers, so that nothing here depends on their being small, in order or finite.
#pragma once

#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

struct RoiBox {
  double left, top, right, bottom;
};

// What one sample reads along an axis: two neighbours.
struct RoiSample {
  int64_t low, high;
  double by_low, by_high;
};

// Along one axis of a region: the samples of each bin that lie on the map.
struct RoiAxis {
  std::vector<std::vector<RoiSample>> bins;
  double samples = 0;  // of a bin, those beside the map too
  bool finite = true;  // else there is no telling what is sampled
};

// RoiAlign's attributes.
struct RoiAlignRule {
  bool half_pixel, max;
  int64_t height, width, samples;
  double scale;
  explicit RoiAlignRule(const Attrs& attrs);
  // From `start` to `end` in numbers of the box, over a map of `size`.
  RoiAxis axis(double start, double end, int64_t size, int64_t bins) const;
  RoiAxis rows(const RoiBox& box, int64_t size) const {
    return axis(box.top, box.bottom, size, height);
  }
  RoiAxis columns(const RoiBox& box, int64_t size) const {
    return axis(box.left, box.right, size, width);
  }
};

// Along one axis of a region that MaxRoiPool reads: [begin, end) of each bin.
struct RoiBins {
  std::vector<int64_t> begin, end;
  bool finite = true;
};
RoiBins roi_bins(double start, double end, double scale, int64_t size, int64_t bins);

}  // namespace ort
