// Halves as numbers: for loops over any element type. Vectors of them are in convert.h.
#pragma once

#include "csrc/core/tensor.h"

namespace ort::cpu {

// Storage that reads as a float32 and is rounded when written.
template <DType kDType>
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value)
      : bits(kDType == DType::f16 ? float_to_half(value) : float_to_bfloat(value)) {}
  operator float() const {  // NOLINT: it is a number
    return kDType == DType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
  }
};
using Float16 = Half<DType::f16>;
using BFloat16 = Half<DType::bf16>;

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsHalf<T>;

// As dispatch, and for halves.
template <class F>
decltype(auto) dispatch_numbers(DType dtype, F&& f) {
  if (dtype == DType::f16) return f.template operator()<Float16>();
  if (dtype == DType::bf16) return f.template operator()<BFloat16>();
  return dispatch(dtype, std::forward<F>(f));
}

}  // namespace ort::cpu
