// A tensor that is kept as torch's own nodes keep theirs: a write to it is noticed, and hooks on
// saved tensors see it.
//
// Of torch, in every version from 2.11 on: SavedVariable (torch/csrc/autograd/saved_variable.h),
// and whether hooks would pack it (ATen/SavedTensorHooks.h). `unpack` takes the node as this torch
// holds nodes (autograd_graph.h).
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace ort::bridge {

class SavedTensor {
 public:
  explicit SavedTensor(const at::Tensor& input) : saved_(input, /*is_output=*/false) {}
  at::Tensor unpack() const { return saved_.unpack(nullptr); }
  // Whether the user's hooks take what is saved now.
  static bool is_hooked() { return at::SavedTensorDefaultHooks::get_hooks().has_value(); }

 private:
  torch::autograd::SavedVariable saved_;
};

}  // namespace ort::bridge
