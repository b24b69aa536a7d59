// A concrete, contiguous, row-major tensor: a view of memory with a shared owner.
#pragma once

#include <cstring>
#include <memory>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"

namespace ort {

struct Tensor {
  DType dtype = DType::undefined;
  Sizes sizes;
  void* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps data alive; null for borrowed memory

  int64_t count() const { return element_count(sizes); }
  size_t bytes() const { return static_cast<size_t>(count()) * size_of(dtype); }
  template <class T>
  T* as() {
    return static_cast<T*>(data);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }

  static Tensor empty(DType dtype, Sizes sizes);  // new zeroed memory of its own, 64-byte aligned
  // Of the pool's memory, contents undefined but for strings: for what is written whole at once.
  static Tensor unwritten(DType dtype, Sizes sizes);
  static Tensor scalar(DType dtype, double value);
  static Tensor of(const std::vector<int64_t>& values);  // int64 vector
  // The elements of a tensor of strings are pointers to them, so that what moves elements moves
  // strings; null is the empty string.
  static Tensor of_strings(std::vector<std::string> texts, Sizes sizes);
};

const std::string& text_of(const Tensor& tensor, int64_t i);  // of strings
// The tensor with its strings copied: a run's results point into its feed.
Tensor own_strings(const Tensor& tensor);

// Element i as a double or an int64, whatever the dtype; throws for strings and complex numbers.
double element_as_double(const Tensor& tensor, int64_t i);
int64_t element_as_int(const Tensor& tensor, int64_t i);
void set_element(Tensor& tensor, int64_t i, double value);
bool same_bytes(const Tensor& a, const Tensor& b);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
inline float bfloat_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
uint16_t float_to_bfloat(float value);

}  // namespace ort
