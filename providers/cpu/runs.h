// Runs of an operand as what a kernel computes with: where they lie, or copies of halves as
// float32.
#pragma once

#include <type_traits>

#include "providers/cpu/convert.h"
#include "providers/kernel_table.h"

namespace ort::cpu {

template <class T>
class Runs {
 public:
  explicit Runs(DType dtype) : dtype_(dtype), half_((bit(dtype) & kHalves) != 0) {}
  Runs(const Request& r, size_t i) : Runs(r.has(i) ? r.in(i).dtype : DType::undefined) {}
  static Runs out(const Request& r, size_t i) {
    return Runs(r.wants(i) ? r.out(i).dtype : DType::undefined);
  }
  int64_t buffer(int64_t count) const { return half_ ? count : 0; }

  const T* read(const void* data, int64_t at, int64_t count, T* buffer) const {
    if constexpr (std::is_same_v<T, float>)
      if (half_) {
        widen(dtype_, static_cast<const uint16_t*>(data) + at, buffer, count);
        return buffer;
      }
    return static_cast<const T*>(data) + at;
  }
  // Where a run is made that `write` then leaves in the tensor.
  T* room(void* data, int64_t at, T* buffer) const {
    return half_ ? buffer : static_cast<T*>(data) + at;
  }
  void write(const T* made, void* data, int64_t at, int64_t count) const {
    if constexpr (std::is_same_v<T, float>)
      if (half_) narrow(made, dtype_, static_cast<uint16_t*>(data) + at, count);
  }
  T number(const void* data, int64_t at) const {
    T buffer;
    return *read(data, at, 1, &buffer);
  }
  void put(double value, void* data, int64_t at) const {
    T number = static_cast<T>(value);
    *room(data, at, &number) = number;
    write(&number, data, at, 1);
  }

 private:
  DType dtype_;
  bool half_;
};

}  // namespace ort::cpu
