// A row of pooling windows over a plane of channel blocks, in vectors along the channels: every tap
// of a window is one block. pool_blocks.cpp uses it.
#pragma once

#include <cstdint>
#include <span>

#include "providers/cpu/conv/planes.h"

namespace ort::cpu {

struct BlockRow {
  int64_t lanes;                   // channels of a block, a multiple of 4
  std::span<const int64_t> lines;  // the first position of each line of the plane that windows meet
  std::span<const Taps> windows;   // what each window has along a line
  int64_t dilation;
};

// Where y or `place` is null, it is not written. A place is a position of the plane; of a window
// without taps -1. A NaN is a maximum; of several the last one is.
void max_of_row(const BlockRow& row, const float* x, float* y, int32_t* place);
// Sums divided by what there is for each window.
void average_row(const BlockRow& row, const float* x, const float* divisors, float* y);
// The gradient of that is added to dx.
void spread_row(const BlockRow& row, const float* dy, const float* divisors, float* dx);

}  // namespace ort::cpu
