// Names and sizes of the element types.
#include "csrc/core/dtype.h"

#include <array>

namespace ort {
namespace {

struct Entry {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Entry, 17> kEntries = {{{"undefined", 0},
                                             {"float32", 4},
                                             {"uint8", 1},
                                             {"int8", 1},
                                             {"uint16", 2},
                                             {"int16", 2},
                                             {"int32", 4},
                                             {"int64", 8},
                                             {"string", 8},
                                             {"bool", 1},
                                             {"float16", 2},
                                             {"float64", 8},
                                             {"uint32", 4},
                                             {"uint64", 8},
                                             {"complex64", 8},
                                             {"complex128", 16},
                                             {"bfloat16", 2}}};

}  // namespace

size_t size_of(DType dtype) {
  return kEntries[static_cast<size_t>(dtype)].bytes;
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
