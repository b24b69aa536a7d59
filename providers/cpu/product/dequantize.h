// Floats of a weight that ort::QuantizedLinear keeps in few bits.
#pragma once

#include <cstdint>

#include "csrc/ops/quantized/quantized.h"

namespace ort::cpu {

// Where a weight's codes lie, and what each of its blocks has. Zero points are bytes, floats or
// none: two of the pointers may be null.
struct QuantizedBlocks {
  QuantizedFormat format;
  int64_t block;
  const uint8_t* codes;
  const float* scales;
  const uint8_t* byte_zeros = nullptr;
  const float* zeros = nullptr;
};

// Elements [begin, end) of the weight, as they lie.
void dequantize(const QuantizedBlocks& w, int64_t begin, int64_t end, float* to);
// The numbers of x, as many as some blocks have, in the order that sums of products read them in.
void arrange_for_dots(const QuantizedBlocks& w, const float* x, int64_t count, float* to);
// The sum of elements [begin, end), which are whole blocks, each times a number of x, arranged.
float quantized_dot(const QuantizedBlocks& w, int64_t begin, int64_t end, const float* x);

}  // namespace ort::cpu
