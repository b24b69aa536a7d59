// Slicing and stacking, and the half that is about the older vmap's tensors.
//
// Of torch, in every version from 2.11 on: isBatchedTensor, makeBatched and the dimensions of a
// BatchedTensorImpl (ATen/LegacyBatchedTensorImpl.h).
#include "csrc/torch_bridge/internals/batched.h"

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/ops/stack.h>

#include "csrc/core/error.h"

namespace ort::bridge {
namespace {

Batched legacy_parts(const at::Tensor& tensor) {
  const auto* batched = at::unsafeGetBatchedImpl(tensor);
  check(batched->bdims().size() == 1, "a gradient is batched {} times, expected once",
        batched->bdims().size());
  return {batched->value(), batched->bdims()[0].dim(), batched->bdims()[0].level()};
}

Batched parts_of(const at::Tensor& tensor) {
  Batched parts = is_functorch_batched(tensor) ? functorch_parts(tensor) : legacy_parts(tensor);
  check(!is_batched(parts.value), "a gradient is batched twice, expected once");
  return parts;
}

}  // namespace

bool is_batched(const at::Tensor& tensor) {
  return tensor.defined() && (is_functorch_batched(tensor) || at::isBatchedTensor(tensor));
}

at::Tensor slice_of(const at::Tensor& tensor, int64_t index) {
  if (!is_batched(tensor)) return tensor;
  const Batched parts = parts_of(tensor);
  return parts.value.select(parts.dim, index);
}

int64_t batch_size(const at::Tensor& tensor) {
  const Batched parts = parts_of(tensor);
  return parts.value.size(parts.dim);
}

at::Tensor batched_like(const at::Tensor& like, const std::vector<at::Tensor>& slices) {
  at::Tensor all = at::stack(slices);
  const int64_t level = parts_of(like).level;
  if (is_functorch_batched(like)) return functorch_batched(std::move(all), level);
  return at::makeBatched(std::move(all), {{level, 0}});
}

}  // namespace ort::bridge
