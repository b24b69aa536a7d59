// torch tensors over the engine's pool, and the pointers of torch tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>

#include "providers/kernel.h"

namespace ort::bridge {

DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

Device device_of(c10::Device device);
c10::Device torch_device(Device device);
// Torch's current stream of a device; the host has none.
std::optional<c10::Stream> current_stream(Device device);
// A stream as its device's own library has it.
std::optional<void*> native(std::optional<c10::Stream> stream);

// A contiguous tensor with undefined elements: on the host in a block of the pool, elsewhere in
// torch's memory. Throws OutOfMemory.
at::Tensor empty(const Operand& type);

// The tensor itself when its elements lie contiguously as they are (those of a negative or
// conjugate view do not), else a contiguous copy.
inline at::Tensor contiguous(const at::Tensor& tensor) {
  if (tensor.is_neg() || tensor.is_conj()) return tensor.resolve_conj().resolve_neg().contiguous();
  return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

}  // namespace ort::bridge
