// Element types, with ONNX's numbering (TensorProto.DataType).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "csrc/core/error.h"

namespace ort {

enum class DType : uint8_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  c64 = 14,
  c128 = 15,
  bf16 = 16,
  f8e4m3fn = 17,
  f8e4m3fnuz = 18,
  f8e5m2 = 19,
  f8e5m2fnuz = 20,
  u4 = 21,
  i4 = 22,
  f4e2m1 = 23,
  f8e8m0 = 24,
  u2 = 25,
  i2 = 26,
  f6e2m3 = 27,
  f6e3m2 = 28,
};
constexpr int kDTypes = 29;

// Bytes an element in memory; of a string those of a pointer. What is narrower than a byte has one
// for itself, as in ml_dtypes' arrays, so that whatever moves bytes moves it.
size_t size_of(DType dtype);
int bits_of(DType dtype);                  // an element in a file, where 4 and 2 bits are packed
std::string_view name_of(DType dtype);     // numpy's names: "float32", "bool", ...
DType dtype_named(std::string_view name);  // throws on an unknown name
bool known_dtype(int64_t onnx_number);

inline bool is_half(DType d) {
  return d == DType::f16 || d == DType::bf16;
}
inline bool is_floating(DType d) {
  return d == DType::f32 || d == DType::f64 || is_half(d);
}
// What is stored and cast and moved, and computed with by nobody: 8 bits and fewer.
inline bool is_narrow_float(DType d) {
  return (d >= DType::f8e4m3fn && d <= DType::f8e5m2fnuz) || d == DType::f4e2m1 ||
         d == DType::f8e8m0 || d == DType::f6e2m3 || d == DType::f6e3m2;
}
inline bool is_narrow_integer(DType d) {
  return d == DType::u4 || d == DType::i4 || d == DType::u2 || d == DType::i2;
}
inline bool is_narrow(DType d) {
  return is_narrow_float(d) || is_narrow_integer(d);
}
inline bool is_complex(DType d) {
  return d == DType::c64 || d == DType::c128;
}
inline bool is_signed_integer(DType d) {
  return d == DType::i8 || d == DType::i16 || d == DType::i32 || d == DType::i64;
}
inline bool is_unsigned_integer(DType d) {
  return d == DType::u8 || d == DType::u16 || d == DType::u32 || d == DType::u64;
}
inline bool is_integer(DType d) {
  return is_signed_integer(d) || is_unsigned_integer(d);
}

inline std::ostream& operator<<(std::ostream& out, DType d) {
  return out << name_of(d);
}

// Calls f.template operator()<T>() with the C++ type of an integer, bool, float32 or float64 dtype.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::i16:
      return f.template operator()<int16_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::u16:
      return f.template operator()<uint16_t>();
    case DType::u32:
      return f.template operator()<uint32_t>();
    case DType::u64:
      return f.template operator()<uint64_t>();
    case DType::boolean:
      return f.template operator()<bool>();
    default:
      fail("no kernel for dtype {}", dtype);
  }
}

}  // namespace ort
