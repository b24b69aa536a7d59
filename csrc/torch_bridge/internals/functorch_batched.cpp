// The half of batched.h that is about functorch's tensors.
//
// Of torch, in every version from 2.11 on: isBatchedTensor, makeBatched and the one dimension of a
// BatchedTensorImpl (ATen/functorch/BatchedTensorImpl.h).
#include <ATen/functorch/BatchedTensorImpl.h>

#include "csrc/torch_bridge/internals/batched.h"

namespace ort::bridge {

bool is_functorch_batched(const at::Tensor& tensor) {
  return at::functorch::isBatchedTensor(tensor);
}

Batched functorch_parts(const at::Tensor& tensor) {
  const auto* batched = at::functorch::unsafeGetBatchedImpl(tensor);
  return {batched->value(), batched->bdim(), batched->level()};
}

at::Tensor functorch_batched(at::Tensor value, int64_t level) {
  return at::functorch::makeBatched(std::move(value), 0, level);
}

}  // namespace ort::bridge
