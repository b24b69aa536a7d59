// Quantised tensors by their parts: x = (q - zero_point) scale.
#pragma once

#include "csrc/ops/ops.h"

namespace ort::quantized {

inline constexpr TypeSet kBytes = bit(DType::i8) | bit(DType::u8);

// q - zero_point, which may be absent, in a dtype that holds it.
Value centred(Value q, Value zero_point, DType dtype);
// In float32 what is divided already: rounded to even, moved, saturated.
Value saturated(Value quotient, Value zero_point, DType dtype);

// x as uint8 with the scale and zero point that its range asks for.
struct Quantized {
  Value q, scale, zero_point;
};
Quantized dynamically(Value x);

// Sums of integer products, exact in the float that they are made in. The zero points of a are one
// or a row's each, those of b one or a column's.
Value integer_product(Value a, Value b, Value a_zero, Value b_zero);

}  // namespace ort::quantized
