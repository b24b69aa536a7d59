// Numbers to the bits of every dtype and back: narrow ones by one table of formats, and text.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "csrc/core/dtype.h"

namespace ort {

// The integer in a float or a double, what is behind the point left off; the lowest one where there
// is none of this type.
template <class Int, class Float>
Int truncated(Float x) {
  constexpr Float kEnd = static_cast<Float>(uint64_t{1} << (8 * sizeof(Int) - 1));
  const bool inside = (x >= -kEnd) & (x < kEnd);  // no branch: loops of it become vectors
  return static_cast<Int>(inside ? x : -kEnd);
}

// A number as another type. C++ leaves open what an integer is for NaN and for numbers that it has
// no place for; here it is what torch's and onnxruntime's kernels give on x86, on every path alike.
template <class To, class From>
To number_as(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (!std::is_floating_point_v<From> || !std::is_integral_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_unsigned_v<To> && sizeof(To) >= 4) {
    // The upper half of its range is converted below the middle, and moved up by the highest bit.
    using Signed = std::make_signed_t<To>;
    constexpr To kTop = To{1} << (8 * sizeof(To) - 1);
    constexpr From kMiddle = static_cast<From>(kTop);
    return x >= kMiddle ? static_cast<To>(truncated<Signed>(x - kMiddle)) ^ kTop
                        : static_cast<To>(truncated<Signed>(x));
  } else {  // the low bits of a wider integer
    using Wide =
        std::conditional_t<sizeof(To) == 8 || (std::is_same_v<To, uint8_t> && sizeof(From) == 8),
                           int64_t, int32_t>;  // a float beyond 32 bits has no low byte
    return static_cast<To>(truncated<Wide>(x));
  }
}

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
