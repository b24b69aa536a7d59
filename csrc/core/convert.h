// Numbers to the bits of every dtype and back: narrow ones by one table of formats, and text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/core/dtype.h"

namespace ort {

// Which way what lies between two numbers of a dtype without mantissa goes.
enum class Rounding : uint8_t { up, down, nearest };
Rounding rounding_named(std::string_view name);  // throws on an unknown name

// How a number goes into a narrow dtype. Beyond its range it becomes the largest that there is, or,
// where `saturate` is off, an infinity or NaN if the dtype has one.
struct Narrowing {
  bool saturate = true;
  Rounding rounding = Rounding::up;  // of float8_e8m0fnu alone; the others round to even
};

// Bits of a floating dtype of 16 bits and fewer. Exact, and rounded once from the double.
double float_of_bits(uint32_t bits, DType dtype);
uint32_t bits_of_float(double value, DType dtype, Narrowing how = {});
// Of uint4, int4, uint2 and int2; what does not fit loses its high bits.
int64_t integer_of_bits(uint32_t bits, DType dtype);
uint8_t bits_of_integer(int64_t value, DType dtype);

// The shortest text that reads back as the same number of the dtype, as numpy prints it.
std::string number_text(double value, DType dtype);
// The number at the whole of a text, spaces around it aside; throws where there is none.
double number_in(std::string_view text);
int64_t integer_in(std::string_view text);  // of a fraction what is before the point

}  // namespace ort
