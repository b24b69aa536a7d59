// Parts of tensors along one axis, in new memory: whatever the dtype, strings too.
#pragma once

#include <span>

#include "csrc/core/tensor.h"

namespace ort {

// Row `at` of the axis, which is gone; `length` rows from `start`; the rows named.
Tensor row(const Tensor& x, int64_t axis, int64_t at);
Tensor rows(const Tensor& x, int64_t axis, int64_t start, int64_t length);
Tensor rows(const Tensor& x, int64_t axis, std::span<const int64_t> indices);
// Tensors of one dtype side by side; of one shape along a new axis. Errors say which differs.
Tensor concatenated(std::span<const Tensor> parts, int64_t axis);
Tensor stacked(std::span<const Tensor> parts, int64_t axis);

}  // namespace ort
