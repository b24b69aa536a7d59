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
};

size_t size_of(DType dtype);               // bytes an element; of a string those of a pointer
std::string_view name_of(DType dtype);     // numpy's names: "float32", "bool", ...
DType dtype_named(std::string_view name);  // throws on an unknown name
bool known_dtype(int64_t onnx_number);

inline bool is_half(DType d) {
  return d == DType::f16 || d == DType::bf16;
}
inline bool is_floating(DType d) {
  return d == DType::f32 || d == DType::f64 || is_half(d);
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
