// One conversion for every floating format, told apart by a table.
#include "csrc/core/convert.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace ort {
namespace {

// What the largest exponent, or a zero with a sign, stands for.
enum class Specials : uint8_t {
  ieee,        // infinities, and NaNs with any mantissa
  last_nan,    // NaN where all bits are set: no infinity
  minus_zero,  // NaN is what would be -0: no infinity
  none,        // every pattern is a number
};

struct FloatFormat {
  DType dtype;
  int exponent, mantissa, bias;
  Specials specials;
};

constexpr std::array<FloatFormat, 9> kFormats = {{
    {DType::f16, 5, 10, 15, Specials::ieee},
    {DType::bf16, 8, 7, 127, Specials::ieee},
    {DType::f8e4m3fn, 4, 3, 7, Specials::last_nan},
    {DType::f8e4m3fnuz, 4, 3, 8, Specials::minus_zero},
    {DType::f8e5m2, 5, 2, 15, Specials::ieee},
    {DType::f8e5m2fnuz, 5, 2, 16, Specials::minus_zero},
    {DType::f4e2m1, 2, 1, 1, Specials::none},
    {DType::f6e2m3, 2, 3, 1, Specials::none},
    {DType::f6e3m2, 3, 2, 3, Specials::none},
}};

const FloatFormat& format_of(DType dtype) {
  for (const FloatFormat& format : kFormats)
    if (format.dtype == dtype) return format;
  fail("{} is no narrow floating dtype", dtype);
}

uint32_t magnitude_mask(const FloatFormat& f) {
  return (1u << (f.exponent + f.mantissa)) - 1;
}

// The pattern of the largest number, without a sign.
uint32_t largest(const FloatFormat& f) {
  if (f.specials == Specials::ieee) return magnitude_mask(f) - (1u << f.mantissa);
  return magnitude_mask(f) - (f.specials == Specials::last_nan ? 1 : 0);
}

// NaN; a dtype without one has -0 for it, as ml_dtypes does.
uint32_t not_a_number(const FloatFormat& f, bool negative) {
  const uint32_t sign = 1u << (f.exponent + f.mantissa);
  switch (f.specials) {
    case Specials::ieee:
      return (negative ? sign : 0) | (largest(f) + 1) | (1u << (f.mantissa - 1));
    case Specials::last_nan:
      return (negative ? sign : 0) | magnitude_mask(f);
    case Specials::minus_zero:
      return sign;
    default:
      return negative ? 0 : sign;
  }
}

uint32_t beyond(const FloatFormat& f, bool negative, bool saturate) {
  const uint32_t sign = negative ? 1u << (f.exponent + f.mantissa) : 0;
  if (saturate || f.specials == Specials::none) return sign | largest(f);
  return f.specials == Specials::ieee ? sign | (largest(f) + 1) : not_a_number(f, negative);
}

// float8_e8m0fnu: a power of two, 2^(bits - 127), or NaN. Signs are dropped.
constexpr uint32_t kPowerNan = 255;

uint32_t power_bits(double value, Narrowing how) {
  if (std::isnan(value)) return kPowerNan;
  const double size = std::fabs(value);
  const double least = std::ldexp(1.0, -127), most = std::ldexp(1.0, 127);
  if (size < least) return how.saturate ? 0 : kPowerNan;
  if (size > most) {
    const bool back = how.rounding == Rounding::down && size < 2 * most;
    return how.saturate || back ? kPowerNan - 1 : kPowerNan;
  }
  int exponent = 0;
  const double part = std::frexp(size, &exponent);  // in [0.5, 1)
  const bool up = how.rounding == Rounding::up        ? part > 0.5
                  : how.rounding == Rounding::nearest ? part >= 0.75
                                                      : false;
  return static_cast<uint32_t>(exponent - 1 + 127 + (up ? 1 : 0));
}

}  // namespace

Rounding rounding_named(std::string_view name) {
  if (name == "up") return Rounding::up;
  if (name == "down") return Rounding::down;
  check(name == "nearest", "round_mode is '{}', expected up, down or nearest", name);
  return Rounding::nearest;
}

double float_of_bits(uint32_t bits, DType dtype) {
  if (dtype == DType::f8e8m0)
    return bits == kPowerNan ? std::numeric_limits<double>::quiet_NaN()
                             : std::ldexp(1.0, static_cast<int>(bits) - 127);
  const FloatFormat& f = format_of(dtype);
  const bool negative = (bits >> (f.exponent + f.mantissa)) & 1;
  const uint32_t magnitude = bits & magnitude_mask(f);
  if (f.specials == Specials::minus_zero && negative && magnitude == 0)
    return std::numeric_limits<double>::quiet_NaN();
  double value;
  if (magnitude > largest(f)) {
    const bool infinite = f.specials == Specials::ieee && magnitude == largest(f) + 1;
    value = infinite ? std::numeric_limits<double>::infinity()
                     : std::numeric_limits<double>::quiet_NaN();
  } else {
    const int exponent = static_cast<int>(magnitude >> f.mantissa);
    const uint32_t fraction = magnitude & ((1u << f.mantissa) - 1);
    const uint32_t whole = exponent == 0 ? fraction : fraction | (1u << f.mantissa);
    value = std::ldexp(whole, std::max(exponent, 1) - f.bias - f.mantissa);
  }
  return negative ? -value : value;
}

uint32_t bits_of_float(double value, DType dtype, Narrowing how) {
  if (dtype == DType::f8e8m0) return power_bits(value, how);
  const FloatFormat& f = format_of(dtype);
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return not_a_number(f, negative);
  if (std::isinf(value)) return beyond(f, negative, how.saturate);
  int exponent = 0;
  const double size = std::fabs(value);
  std::frexp(size, &exponent);
  // Of the last place: a number below the normal ones has the least normal's.
  const int place = std::max(exponent - 1, 1 - f.bias) - f.mantissa;
  const double units = std::nearbyint(std::ldexp(size, -place));
  // A carry out of the mantissa is one more of the exponent.
  const int64_t raised = static_cast<int64_t>(place + f.mantissa + f.bias - 1) << f.mantissa;
  const int64_t magnitude = (size == 0 ? 0 : raised) + static_cast<int64_t>(units);
  if (magnitude > static_cast<int64_t>(largest(f))) return beyond(f, negative, how.saturate);
  const bool signs = negative && !(f.specials == Specials::minus_zero && magnitude == 0);
  return static_cast<uint32_t>(magnitude) | (signs ? 1u << (f.exponent + f.mantissa) : 0);
}

int64_t integer_of_bits(uint32_t bits, DType dtype) {
  const int width = bits_of(dtype);
  const int64_t whole = bits & ((1u << width) - 1);
  const bool has_sign = dtype == DType::i4 || dtype == DType::i2;
  return has_sign && (whole >> (width - 1)) ? whole - (int64_t{1} << width) : whole;
}

uint8_t bits_of_integer(int64_t value, DType dtype) {
  return static_cast<uint8_t>(static_cast<uint64_t>(value) & ((1u << bits_of(dtype)) - 1));
}

namespace {

// The fewest digits that give the same number back.
std::string shortest(double value, DType dtype, std::chars_format how) {
  std::array<char, 400> text{};
  const auto end = text.data() + text.size();
  if (dtype == DType::f64) return {text.data(), std::to_chars(text.data(), end, value, how).ptr};
  if (dtype == DType::f32)
    return {text.data(), std::to_chars(text.data(), end, static_cast<float>(value), how).ptr};
  // What is rounded up beyond the largest number would read back as an infinity.
  constexpr Narrowing kExact{.saturate = false};
  const double above = value * (1 + 0x1p-52);  // rounds up where the value itself is a tie
  for (int digits = 0;; ++digits)              // 16 bits and fewer: a handful of digits
    for (const double near : {value, above}) {
      const std::string tried{
          text.data(),
          std::to_chars(text.data(), end, near, std::chars_format::scientific, digits).ptr};
      const double back = std::strtod(tried.c_str(), nullptr);
      if (digits < 17 && bits_of_float(back, dtype, kExact) != bits_of_float(value, dtype, kExact))
        continue;
      if (how == std::chars_format::scientific) return tried;
      return {text.data(), std::to_chars(text.data(), end, back, how).ptr};
    }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

}  // namespace

std::string number_text(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (is_narrow_float(dtype)) dtype = DType::f64;  // a few digits tell all of it
  const double size = std::fabs(value);
  const double most = dtype == DType::f64 ? 1e16 : dtype == DType::f32 ? 1e6 : 1e3;
  if (size == 0 || (size >= 1e-4 && size < most)) {
    std::string text = shortest(value, dtype, std::chars_format::fixed);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  return shortest(value, dtype, std::chars_format::scientific);
}

double number_in(std::string_view text) {
  std::string_view word = trimmed(text);
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  // What is too large or too small for a double is an infinity or zero; from_chars leaves it open.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(word).c_str(), nullptr);
  const bool whole = error == std::errc() && end == word.data() + word.size() &&
                     word.find('(') == std::string_view::npos;
  check(whole, "'{}' is no number", text);
  return value;
}

int64_t integer_in(std::string_view text) {
  std::string_view word = trimmed(text);
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  int64_t value = 0;
  const char* const last = word.data() + word.size();
  if (const auto [end, error] = std::from_chars(word.data(), last, value);
      error == std::errc() && end == last)
    return value;
  uint64_t large = 0;
  if (const auto [end, error] = std::from_chars(word.data(), last, large);
      error == std::errc() && end == last)
    return static_cast<int64_t>(large);
  const double number = std::trunc(number_in(text));
  check(number >= -0x1p63 && number < 0x1p63, "'{}' is no integer of 64 bits", text);
  return static_cast<int64_t>(number);
}

}  // namespace ort
