// What a product or a convolution does to each element of its result, for the kernels of both.
#pragma once

#include "csrc/graph/schema.h"

namespace ort::cpu {

struct Activation {
  Epilogue kind = Epilogue::none;
  double low = 0.0, high = 0.0;  // the bounds of a clip; a slope is `low`
  explicit operator bool() const { return kind != Epilogue::none; }
};

Activation activation_of(const Attrs& attrs);
// "+relu" and the like, for the name of a kernel; empty for none.
std::string suffix_of(const Activation& activation);

// Over `count` numbers in place, of float32 or halves, computed in float32.
void activate(const Activation& activation, DType dtype, void* y, int64_t count);

}  // namespace ort::cpu
