// torch tensors over the engine's pool, and the pointers of torch tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"

namespace ort::bridge {

DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

// A contiguous tensor with undefined elements in a block of the pool.
at::Tensor empty(const Sizes& sizes, at::ScalarType type);

// The tensor itself when its elements lie contiguously as they are (a negative view's do not), else
// a contiguous copy.
inline at::Tensor contiguous(const at::Tensor& tensor) {
  if (tensor.is_neg()) return tensor.resolve_neg().contiguous();
  return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

}  // namespace ort::bridge
