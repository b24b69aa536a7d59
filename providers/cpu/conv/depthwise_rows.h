// One row of dy against one row of x, in vectors of channels.
#pragma once

#include <cstdint>

namespace ort::cpu {

constexpr int64_t kMostTaps = 7;

struct DepthwiseRow {
  int64_t lanes;  // channels that are taken: 8 or 16
  int64_t pitch;  // numbers from a position to the next
  int64_t taps;   // at most kMostTaps
  int64_t stride, dilation, before;
  int64_t in, out;  // positions of x and of dy
};

// sums[k, lane] += sum over o of dy[o] x[o stride + k dilation - before].
void add_depthwise_row(const DepthwiseRow& row, const float* x, const float* dy, float* sums);

}  // namespace ort::cpu
