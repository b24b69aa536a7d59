// What each element-wise instruction means, once, for any element type: what every provider's code
// for it is tested against, and itself the code where a provider has none.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "csrc/core/tensor.h"

namespace ort::tile::scalar {

template <class T>
constexpr bool kWraps = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Integer arithmetic wraps, as numpy's and torch's does; on floats and bools the operators.
template <class T, class F>
T wrapped(T a, T b, F f) {
  if constexpr (kWraps<T>) {
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return static_cast<T>(f(a, b));
  }
}

template <class T>
T add(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x + y; });
}
template <class T>
T sub(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x - y; });
}
template <class T>
T mul(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x * y; });
}

template <class T>
T div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) fail("[Div] division of an integer by zero");
    if constexpr (std::is_signed_v<T>)
      if (b == static_cast<T>(-1)) return sub<T>(T(0), a);
  }
  return static_cast<T>(a / b);
}

template <class T, bool kTruncated>
T remainder(T a, T b) {
  T m;
  if constexpr (std::is_floating_point_v<T>) {
    m = std::fmod(a, b);
  } else {
    if (b == 0) fail("[Mod] division of an integer by zero");
    if constexpr (std::is_signed_v<T>)
      if (b == static_cast<T>(-1)) return T(0);
    m = static_cast<T>(a % b);
  }
  return kTruncated || m == 0 || (m < 0) == (b < 0) ? m : static_cast<T>(m + b);
}
// The sign is the divisor's, or the dividend's with fmod.
template <class T>
T mod(T a, T b) {
  return remainder<T, false>(a, b);
}
template <class T>
T fmod(T a, T b) {
  return remainder<T, true>(a, b);
}

// Of integers what wraps; with a negative exponent the quotient towards zero.
template <class T, class E>
T pow(T x, E y) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    if (y < E(0)) return x == T(1) || x == static_cast<T>(-1) ? (y % 2 ? x : T(1)) : T(0);
    T result = T(1);
    for (auto rest = static_cast<uint64_t>(y); rest > 0; rest >>= 1, x = mul(x, x))
      if (rest & 1) result = mul(result, x);
    return result;
  } else {
    return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
  }
}

// NaN wins; of two zeros the second.
template <class T>
T max(T a, T b) {
  return ((a != a) | (a > b)) ? a : b;  // no branch: loops of it become vectors
}
template <class T>
T min(T a, T b) {
  return ((a != a) | (a < b)) ? a : b;
}

// By a negative number, or by all bits there are, everything goes: the sign is what fills in.
template <class T>
T shift_left(T a, T b) {
  using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
  constexpr T kWidth = 8 * sizeof(T);
  const bool inside = (b >= T(0)) & (b < kWidth);
  const T by = inside ? b : T(0), x = inside ? a : T(0);
  return static_cast<T>(static_cast<U>(x) << by);
}
template <class T>
T shift_right(T a, T b) {
  constexpr T kWidth = 8 * sizeof(T);
  const bool inside = (b >= T(0)) & (b < kWidth);
  const T by = inside ? b : T(kWidth - 1);
  const T x = inside || a < T(0) ? a : T(0);
  return static_cast<T>(x >> by);
}

#define ORT_UNARY(NAME, EXPRESSION)    \
  template <class T>                   \
  T NAME(T x) {                        \
    return static_cast<T>(EXPRESSION); \
  }
#define ORT_BINARY(NAME, EXPRESSION)   \
  template <class T>                   \
  T NAME(T a, T b) {                   \
    return static_cast<T>(EXPRESSION); \
  }
ORT_UNARY(copy, x)
ORT_UNARY(relu, x < T(0) ? T(0) : x)
ORT_UNARY(sign, x == x ? T((x > T(0)) - (x < T(0))) : x)
ORT_UNARY(logical_not, x == T(0))
ORT_UNARY(square, mul(x, x))
ORT_UNARY(bit_not, ~x)
ORT_BINARY(equal, a == b)
ORT_BINARY(less, a < b)
ORT_BINARY(less_equal, a <= b)
ORT_BINARY(logical_and, (a != T(0)) & (b != T(0)))
ORT_BINARY(logical_or, (a != T(0)) | (b != T(0)))
ORT_BINARY(logical_xor, (a != T(0)) != (b != T(0)))
ORT_BINARY(bit_and, a& b)
ORT_BINARY(bit_or, a | b)
ORT_BINARY(bit_xor, a ^ b)
#undef ORT_UNARY
#undef ORT_BINARY

template <class T>
T neg(T x) {
  if constexpr (std::is_floating_point_v<T>) return -x;
  return sub<T>(T(0), x);
}
template <class T>
T abs(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
  return x < T(0) ? sub<T>(T(0), x) : x;
}

template <class T>
T where(T condition, T a, T b) {
  return condition != T(0) ? a : b;
}
template <class T>
T mul_add(T a, T b, T c) {
  return add(mul(a, b), c);
}

// Functions of floating numbers, computed in double.
inline double logistic(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

inline double gelu_derivative_of(double x) {
  const double below = 0.5 * (1.0 + std::erf(x * 0.70710678118654752440));
  return below + x * (0.39894228040143267794 * std::exp(-0.5 * (x * x)));
}
// The square as the element type has it: an infinite one gives NaN, as in torch.
inline double gelu_tanh_derivative_of(double x, double square) {
  const double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * (x * square)));
  const double inner = 0.79788456080286535588 * (1.0 + 0.134145 * square);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}
inline double silu_derivative_of(double x) {
  const double s = logistic(x);
  return s * (1.0 + x * (1.0 - s));
}

#define ORT_FUNCTION(NAME, EXPRESSION)                            \
  template <class T>                                              \
  T NAME(T value) {                                               \
    [[maybe_unused]] const double x = static_cast<double>(value); \
    return static_cast<T>(EXPRESSION);                            \
  }
ORT_FUNCTION(exp, std::exp(x))
ORT_FUNCTION(log, std::log(x))
ORT_FUNCTION(log1p, std::log1p(x))
ORT_FUNCTION(expm1, std::expm1(x))
ORT_FUNCTION(log2, std::log2(x))
ORT_FUNCTION(sqrt, std::sqrt(x))
ORT_FUNCTION(reciprocal, 1.0 / x)
ORT_FUNCTION(erf, std::erf(x))
ORT_FUNCTION(tanh, std::tanh(x))
ORT_FUNCTION(sigmoid, logistic(x))
ORT_FUNCTION(gelu, 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440)))
ORT_FUNCTION(gelu_tanh, x* logistic(1.5957691216057307117 * (x * (x * x * 0.044715 + 1.0))))
ORT_FUNCTION(silu, x* logistic(x))
ORT_FUNCTION(gelu_derivative, gelu_derivative_of(x))
ORT_FUNCTION(gelu_tanh_derivative, gelu_tanh_derivative_of(x, static_cast<double>(value* value)))
ORT_FUNCTION(silu_derivative, silu_derivative_of(x))
ORT_FUNCTION(sin, std::sin(x))
ORT_FUNCTION(cos, std::cos(x))
ORT_FUNCTION(tan, std::tan(x))
ORT_FUNCTION(asin, std::asin(x))
ORT_FUNCTION(acos, std::acos(x))
ORT_FUNCTION(atan, std::atan(x))
ORT_FUNCTION(sinh, std::sinh(x))
ORT_FUNCTION(cosh, std::cosh(x))
ORT_FUNCTION(asinh, std::asinh(x))
ORT_FUNCTION(acosh, std::acosh(x))
ORT_FUNCTION(atanh, std::atanh(x))
ORT_FUNCTION(floor, std::floor(x))
ORT_FUNCTION(ceil, std::ceil(x))
ORT_FUNCTION(round, std::nearbyint(x))
ORT_FUNCTION(is_nan, std::isnan(x))
ORT_FUNCTION(is_inf, std::isinf(x))
ORT_FUNCTION(to_bf16, bfloat_to_float(float_to_bfloat(static_cast<float>(x))))
ORT_FUNCTION(to_f16, half_to_float(float_to_half(static_cast<float>(x))))
#undef ORT_FUNCTION

// The lowest of a type: what a maximum of no numbers is.
template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();

// Philox4x32-10 (Salmon et al., 2011): element i of a node takes word i % 4 of the block with
// counter (i / 4, node).
inline uint32_t philox_word(uint64_t key, uint32_t node, uint64_t element) {
  const uint64_t block = element / 4;
  uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), node, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c[3] = static_cast<uint32_t>(p0);
  }
  return c[element % 4];
}

// Kept where the word, as a number in [0, 1), is at least the ratio.
template <class T>
T dropout(T x, T ratio, uint64_t key, uint32_t node, uint64_t element) {
  const T u = static_cast<T>(philox_word(key, node, element) >> 8) * static_cast<T>(0x1p-24);
  return u >= ratio && ratio < T(1) ? x * (T(1) / (T(1) - ratio)) : T(0);
}

}  // namespace ort::tile::scalar
