// Integer arithmetic that wraps, as numpy's and torch's does; on floats and bools the operators.
#pragma once

#include <type_traits>

namespace ort::cpu {

template <class T, class F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return static_cast<T>(f(a, b));
  }
}

template <class T>
T wrapped_add(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x + y; });
}
template <class T>
T wrapped_sub(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x - y; });
}
template <class T>
T wrapped_mul(T a, T b) {
  return wrapped<T>(a, b, [](auto x, auto y) { return x * y; });
}

}  // namespace ort::cpu
