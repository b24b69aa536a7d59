// Gradients of many backward passes at once: the tensors of torch's two vmaps, taken apart into
// plain slices. backward_run.cpp runs a backward for each.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ort::bridge {

// A batched tensor's inside: the value that it wraps and which of its dimensions is the batch.
struct Batched {
  at::Tensor value;
  int64_t dim, level;
};

// Of functorch's vmap, or of the older one that autograd.grad(is_grads_batched=True) uses.
bool is_batched(const at::Tensor& tensor);

// The slice of a gradient; a plain tensor is its own. Throws where batches are nested.
at::Tensor slice_of(const at::Tensor& tensor, int64_t index);
int64_t batch_size(const at::Tensor& tensor);
// The slices' results as one tensor that is batched as `like` is.
at::Tensor batched_like(const at::Tensor& like, const std::vector<at::Tensor>& slices);

// functorch_batched.cpp; torch's two headers do not go together.
bool is_functorch_batched(const at::Tensor& tensor);
Batched functorch_parts(const at::Tensor& tensor);
at::Tensor functorch_batched(at::Tensor value, int64_t level);

}  // namespace ort::bridge
