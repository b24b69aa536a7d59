// Convolutions in float64: the windows of an image as columns of a matrix, then products.
#pragma once

#include "providers/cpu/window.h"

namespace ort::cpu {

// x [N, C, D..], w [O, C / group, K..], y [N, O, E..].
struct DoubleConv {
  Sizes x, w, y;
  int64_t group;
  Window window;
};

// Which of the three is made of the other two: inputs are x w, y w, y x.
std::unique_ptr<Kernel> double_conv(const DoubleConv& conv, bool bias);
std::unique_ptr<Kernel> double_conv_grad_x(const DoubleConv& conv, bool bias);
std::unique_ptr<Kernel> double_conv_grad_w(const DoubleConv& conv);

}  // namespace ort::cpu
