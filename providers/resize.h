// What a Resize is along each axis: a linear map of a few neighbours each. Kernels of providers
// share it.
#pragma once

#include "providers/kernel_table.h"

namespace ort {

// y[o] is the sum of weights[begin[o] + k] * x[first[o] + k] for begin[o] + k < begin[o + 1].
struct AxisMap {
  size_t axis = 0;
  int64_t in = 0;
  std::vector<int64_t> first, begin;
  std::vector<double> weights;
  std::vector<int64_t> outside;  // what is no element of x, but the extrapolation value

  int64_t out() const { return static_cast<int64_t>(first.size()); }
  int64_t taps(int64_t o) const {
    return begin[static_cast<size_t>(o) + 1] - begin[static_cast<size_t>(o)];
  }
  int64_t most_taps() const;
  bool moves() const;  // each y[o] is one x[i]
  bool keeps() const;  // y is x
  // The gradient's: x[i] is the sum over the y[o] that read it.
  AxisMap transposed() const;
};

// The operands of a node in numbers; lists that it has not are empty.
struct ResizeNumbers {
  Sizes x, y;
  std::vector<double> roi, scales;
  std::vector<int64_t> sizes;
};

// By axis that is not kept as it is, in their order. `dtype`: of x, in whose precision torch
// computes positions, where attribute "torch_scales" asks for them.
std::vector<AxisMap> resize_maps(const Attrs& attrs, const ResizeNumbers& numbers, DType dtype);

// Whether each element of the result is one of x.
bool resize_moves(const Attrs& attrs);

}  // namespace ort
