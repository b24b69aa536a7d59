// Constants of equal bytes are kept once in a process: sessions on one file share their weights,
// and with these what kernels made of them.
#pragma once

#include "csrc/core/tensor.h"

namespace ort {

// The tensor of discardable memory that has this one's dtype, shape and bytes, where a session
// holds such a one; else this one, for those to come. Of other memory: this one.
Tensor shared_constant(const Tensor& tensor);

}  // namespace ort
