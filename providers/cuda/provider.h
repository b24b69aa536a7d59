// The table of the provider's kernels, which its families fill.
#pragma once

#include "providers/cuda/code.h"
#include "providers/kernel_table.h"

namespace ort::cuda {

const KernelTable& kernel_table();

// The device of a node's kernel.
inline Gpu& gpu_of(const Request& r) {
  return gpu_of(r.out(0).device);
}

}  // namespace ort::cuda
