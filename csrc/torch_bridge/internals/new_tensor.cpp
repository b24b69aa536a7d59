// Of torch, in every version from 2.11 on: empty_generic (ATen/EmptyTensor.h), make_tensor over a
// Storage of ours (c10/core/TensorImpl.h), wrapped_scalar_tensor (ATen/ScalarOps.h) and
// infer_dense_strides (ATen/ExpandUtils.h).
#include "csrc/torch_bridge/internals/new_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace ort::bridge {
namespace {

constexpr c10::DispatchKeySet kHost(c10::DispatchKey::CPU);

}  // namespace

at::Tensor empty_of(c10::Allocator& allocator, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::detail::empty_generic(sizes, &allocator, kHost, dtype, std::nullopt);
}

at::Tensor tensor_over(void* data, std::shared_ptr<const void> owner, at::IntArrayRef sizes,
                       at::ScalarType dtype) {
  using Owner = std::shared_ptr<const void>;
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  c10::DataPtr pointer(
      data, new Owner(std::move(owner)), [](void* held) { delete static_cast<Owner*>(held); },
      c10::Device(c10::DeviceType::CPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(pointer),
                       c10::GetCPUAllocator(), true);
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kHost,
                                                               c10::scalarTypeToTypeMeta(dtype));
  result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

at::Tensor wrapped_number(const at::Scalar& number) {
  return at::native::wrapped_scalar_tensor(number);
}

std::vector<int64_t> dense_strides(const at::Tensor& tensor) {
  return at::infer_dense_strides(tensor.sizes(), tensor.strides());
}

}  // namespace ort::bridge
