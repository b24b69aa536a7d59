// Activations, for the kernels of products and convolutions.
#pragma once

#include "providers/product.h"

namespace ort::cpu {

// Over `count` numbers in place, of float32 or halves, computed in float32.
void activate(const Activation& activation, DType dtype, void* y, int64_t count);

}  // namespace ort::cpu
