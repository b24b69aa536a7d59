// How ort::QuantizedLinear keeps a weight: blocks of elements as they lie, row by row, each the
// number of an element's code times the block's scale.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "csrc/graph/expr.h"

namespace ort {

enum class QuantizedFormat : uint8_t {
  nf4,    // kNormalFloats, two codes to a byte, the first in the upper bits
  fp4,    // kFloats4, the same
  int8,   // -127 to 127
  uint2,  // less the block's zero point; four to a byte, the first in the lowest bits
  uint4,  // the same; two to a byte
  uint8   // the same
};
QuantizedFormat quantized_format(std::string_view name);

constexpr bool is_by_table(QuantizedFormat format) {
  return format == QuantizedFormat::nf4 || format == QuantizedFormat::fp4;
}
constexpr bool is_unsigned(QuantizedFormat format) {
  return format >= QuantizedFormat::uint2;
}
constexpr int bits_of(QuantizedFormat format) {
  if (is_by_table(format) || format == QuantizedFormat::uint4) return 4;
  return format == QuantizedFormat::uint2 ? 2 : 8;
}

// How many numbers hold the codes of so many elements.
constexpr int64_t code_count(QuantizedFormat format, int64_t elements) {
  return elements * bits_of(format) / 8;
}

// The zero point of a block that says none.
constexpr float middle_of(QuantizedFormat format) {
  return static_cast<float>(1 << (bits_of(format) - 1));
}

// Quantiles of a normal distribution, scaled to [-1, 1]. Dettmers et al., 2023, appendix E.
constexpr std::array<float, 16> kNormalFloats{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Floats of a sign, two bits of exponent and one of fraction, over the largest of them.
constexpr std::array<float, 16> kFloats4{
    0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

constexpr const std::array<float, 16>& table_of(QuantizedFormat format) {
  return format == QuantizedFormat::nf4 ? kNormalFloats : kFloats4;
}

// The table's numbers of codes, two to a byte, the first in the upper bits: [n] -> [2 n], float32.
Value looked_up(Value codes, QuantizedFormat format);
// Codes of `bits` each, the first in a byte's lowest bits: [.., n] -> [.., n 8 / bits], uint8.
Value unpacked(Value bytes, int64_t bits);

}  // namespace ort
