// A slice of a tensor as starts and steps.
#pragma once

#include <vector>

#include "csrc/core/dim.h"

namespace ort {

// Where a slice begins in the whole and its steps there, by axis.
struct Cut {
  Sizes starts, steps;
  int64_t offset(const Sizes& strides) const {
    int64_t at = 0;
    for (size_t i = 0; i < starts.size(); ++i) at += starts[i] * strides[i];
    return at;
  }
  Sizes over(Sizes strides) const {
    for (size_t i = 0; i < steps.size(); ++i) strides[i] *= steps[i];
    return strides;
  }
};

// `sizes`: of the slice, which lies inside the whole or is refused.
Cut cut_of(const Sizes& whole, const Sizes& sizes, const std::vector<int64_t>& starts,
           const std::vector<int64_t>& axes, const std::vector<int64_t>& steps);

}  // namespace ort
