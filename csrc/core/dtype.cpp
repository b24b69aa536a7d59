// Names and sizes of the element types.
#include "csrc/core/dtype.h"

#include <array>

namespace ort {
namespace {

struct Entry {
  std::string_view name;
  size_t bytes;
  int bits;
};

// By ONNX's number; the names are numpy's and ml_dtypes'.
constexpr std::array<Entry, kDTypes> kEntries = {{{"undefined", 0, 0},
                                                  {"float32", 4, 32},
                                                  {"uint8", 1, 8},
                                                  {"int8", 1, 8},
                                                  {"uint16", 2, 16},
                                                  {"int16", 2, 16},
                                                  {"int32", 4, 32},
                                                  {"int64", 8, 64},
                                                  {"string", 8, 64},
                                                  {"bool", 1, 8},
                                                  {"float16", 2, 16},
                                                  {"float64", 8, 64},
                                                  {"uint32", 4, 32},
                                                  {"uint64", 8, 64},
                                                  {"complex64", 8, 64},
                                                  {"complex128", 16, 128},
                                                  {"bfloat16", 2, 16},
                                                  {"float8_e4m3fn", 1, 8},
                                                  {"float8_e4m3fnuz", 1, 8},
                                                  {"float8_e5m2", 1, 8},
                                                  {"float8_e5m2fnuz", 1, 8},
                                                  {"uint4", 1, 4},
                                                  {"int4", 1, 4},
                                                  {"float4_e2m1fn", 1, 4},
                                                  {"float8_e8m0fnu", 1, 8},
                                                  {"uint2", 1, 2},
                                                  {"int2", 1, 2},
                                                  {"float6_e2m3fn", 1, 6},
                                                  {"float6_e3m2fn", 1, 6}}};

}  // namespace

size_t size_of(DType dtype) {
  return kEntries[static_cast<size_t>(dtype)].bytes;
}

int bits_of(DType dtype) {
  return kEntries[static_cast<size_t>(dtype)].bits;
}

std::string_view name_of(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kEntries.size() ? kEntries[index].name : "unknown";
}

DType dtype_named(std::string_view name) {
  for (size_t i = 1; i < kEntries.size(); ++i)
    if (kEntries[i].name == name) return static_cast<DType>(i);
  fail("unknown dtype '{}'", name);
}

bool known_dtype(int64_t onnx_number) {
  return onnx_number > 0 && onnx_number < static_cast<int64_t>(kEntries.size());
}

}  // namespace ort
