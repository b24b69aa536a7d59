// How ort::QuantizedLinear keeps a weight: blocks of elements as they lie, row by row, each the
// number of an element's code times the block's scale.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ort {

enum class QuantizedFormat : uint8_t {
  nf4,  // kNormalFloats, two codes to a byte, the first in the upper bits; the scale is the maximum
  int8  // -127 to 127; the scale is the maximum over 127
};
QuantizedFormat quantized_format(std::string_view name);

constexpr int64_t kQuantizedBlock = 64;  // elements

// How many numbers hold the codes of so many elements.
constexpr int64_t code_count(QuantizedFormat format, int64_t elements) {
  return format == QuantizedFormat::nf4 ? elements / 2 : elements;
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

}  // namespace ort
