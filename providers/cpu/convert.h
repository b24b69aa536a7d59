// Runs of halves to float32 and back, in vectors: what kernels load and store.
#pragma once

#include <cstdint>

#include "csrc/core/dtype.h"

namespace ort::cpu {

void widen(DType half, const void* from, float* to, int64_t count);
// To nearest even; what is too large becomes an infinity, NaN stays NaN.
void narrow(const float* from, DType half, void* to, int64_t count);

}  // namespace ort::cpu
