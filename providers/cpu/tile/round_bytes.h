// The end of quantising, as one pass: what its instructions do one after the other.
#pragma once

#include <cstdint>

namespace ort::cpu {

// y = clip(round(x / divisor) + zero, low, high) as bytes; NaN becomes 0.
struct ByteRounding {
  float divisor = 1, zero = 0, low = 0, high = 255;
};
void round_to_bytes(const float* x, int64_t count, const ByteRounding& how, uint8_t* y);
void round_to_bytes(const float* x, int64_t count, const ByteRounding& how, int8_t* y);

}  // namespace ort::cpu
