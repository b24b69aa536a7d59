// Numbers that are to be an image's elements.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "csrc/core/dtype.h"

namespace ort::reference {

// What an integer cannot be becomes its nearest bound; a fraction is cut off as it is written.
inline void saturate(std::vector<double>& all, DType dtype) {
  if (is_floating(dtype)) return;
  dispatch(dtype, [&]<class T>() {
    const auto low = static_cast<double>(std::numeric_limits<T>::lowest()),
               high = static_cast<double>(std::numeric_limits<T>::max());
    for (double& value : all) value = std::clamp(value, low, high);
  });
}

}  // namespace ort::reference
