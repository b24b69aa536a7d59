// The begin of dequantising, as one pass: what its instructions do one after the other.
#pragma once

#include <cstdint>

namespace ort::cpu {

// y = (x - zero) * scale in floats.
void read_bytes(const uint8_t* x, int64_t count, float zero, float scale, float* y);
void read_bytes(const int8_t* x, int64_t count, float zero, float scale, float* y);

}  // namespace ort::cpu
