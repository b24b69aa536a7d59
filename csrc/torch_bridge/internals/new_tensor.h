// Tensors that torch's own constructors do not make: over an allocator or memory of ours, as
// torch's own otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <vector>

namespace ort::bridge {

// A contiguous one of the host, with undefined elements.
at::Tensor empty_of(c10::Allocator& allocator, at::IntArrayRef sizes, at::ScalarType dtype);

// A contiguous one of the host over memory that somebody owns. Who has it may resize it, which
// at::from_blob does not allow.
at::Tensor tensor_over(void* data, std::shared_ptr<const void> owner, at::IntArrayRef sizes,
                       at::ScalarType dtype);

// A number as operators take it in a tensor's place: its dtype gives way to a tensor's.
at::Tensor wrapped_number(const at::Scalar& number);

// The strides that torch gives to a new tensor like this one.
std::vector<int64_t> dense_strides(const at::Tensor& tensor);

}  // namespace ort::bridge
