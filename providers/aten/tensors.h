// torch tensors and the memory of a frame. Used by the kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "providers/kernel.h"

namespace ort::aten {

// A tensor over memory of the frame; undefined for an absent operand.
at::Tensor over(void* data, const Operand& operand);
at::Tensor copy_of(void* data, const Operand& operand);
// Into the frame's own memory: the operator may return a view, or another order of elements.
void store(const at::Tensor& tensor, void* data, const Operand& operand, const std::string& what);
// Torch queues on its current stream; it must be the step's.
void check_stream(const Args& args, const std::vector<Operand>& operands);

}  // namespace ort::aten
