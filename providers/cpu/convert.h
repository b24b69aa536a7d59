// Runs of halves to float32 and back, and of any numbers to others, in vectors: what kernels load
// and store.
#pragma once

#include <cstdint>

#include "csrc/core/dtype.h"

namespace ort::cpu {

void widen(DType half, const void* from, float* to, int64_t count);
// To nearest even; what is too large becomes an infinity, NaN stays NaN.
void narrow(const float* from, DType half, void* to, int64_t count);

// Elements [at, at + count) of memory of any numbers, as number_as says; halves by way of float32.
void convert(DType from, const void* x, int64_t x_at, DType to, void* y, int64_t y_at,
             int64_t count);

}  // namespace ort::cpu
