// Convolutions by products: the windows of an image as columns of a matrix. For float64, which
// oneDNN does not have, and for float32 where oneDNN has no kernel of its own that is run here.
#pragma once

#include "providers/cpu/conv/window.h"

namespace ort::cpu {

// x [N, C, D..], w [O, C / group, K..], y [N, O, E..].
struct ColumnConv {
  Sizes x, w, y;
  int64_t group;
  Window window;
};

// Which of the three is made of the other two: inputs are x w, y w, y x.
template <class T>
std::unique_ptr<Kernel> column_conv(const ColumnConv& conv, bool bias);
template <class T>
std::unique_ptr<Kernel> column_conv_grad_x(const ColumnConv& conv, bool bias);
template <class T>
std::unique_ptr<Kernel> column_conv_grad_w(const ColumnConv& conv);

}  // namespace ort::cpu
