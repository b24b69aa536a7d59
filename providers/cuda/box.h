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
  int64_t packs_of(size_t element_bytes) const;
  Reach reach_of(const void* first, const Sizes& strides) const;

  Sizes sizes_, from_, to_;
  int64_t count_ = 0, packed_ = 1;  // elements; how many of them a thread may move as one
  size_t element_bytes_, pack_bytes_ = 0;
  Grid grid_, packed_grid_;
  Launch launch_, packed_launch_;
};

}  // namespace ort::cuda
