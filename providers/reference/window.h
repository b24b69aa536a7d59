// Sliding windows over spatial axes: which input element each position of a kernel reads, for
// convolutions and pools alike.
#pragma once

#include "providers/reference/reference.h"

namespace ort::reference {

struct Window {
  Sizes kernel, strides, dilations, before, after;  // by spatial axis
};

// The window attributes of a node over input sizes `in` and output sizes `out` (spatial only).
Window window_of(const KernelCall& c, Sizes kernel, const Sizes& in, const Sizes& out);

// at[o * kernels + k]: the input element that kernel position k of output o reads; -1: padding.
struct Taps {
  int64_t inputs, outputs, kernels;
  std::vector<int64_t> at;
  std::vector<int64_t> covered;  // by output: kernel positions inside the padded input
};
Taps taps_of(const Window& window, const Sizes& in, const Sizes& out);

inline Sizes spatial(const Sizes& sizes) {
  return Sizes(sizes.begin() + 2, sizes.end());
}

}  // namespace ort::reference
