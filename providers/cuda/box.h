// Copies of boxes of elements between two strided layouts: whatever only moves data is one or some.
#pragma once

#include "providers/cuda/provider.h"

namespace ort::cuda {

class BoxCopy {
 public:
  // Strides in elements; 0 repeats. Axes that run on into each other are joined.
  BoxCopy(Gpu& gpu, Sizes sizes, Sizes from_strides, Sizes to_strides, size_t element_bytes);
  // Pointers to the box's first element.
  void run(const void* from, void* to, ort::Stream& stream) const;

 private:
  Sizes sizes_, from_, to_;
  int64_t count_ = 0;
  Grid grid_;
  Launch launch_;
};

}  // namespace ort::cuda
