// Kernel size, strides, dilations and pads of a convolution or pool over [N, C, D1..Dn], with
// auto_pad resolved for concrete sizes. Convolutions, pools and their gradients read it.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

struct Window {
  Sizes kernel, strides, dilations, before, after;
  // Elements of the input that the window spans along an axis.
  int64_t reach(size_t i) const { return dilations[i] * (kernel[i] - 1) + 1; }
};

// `wide` is the larger side (a convolution's input), `narrow` what the windows count.
Window window_of(const Request& r, const Sizes& wide, const Sizes& narrow, const Sizes& kernel);

}  // namespace ort::cpu
