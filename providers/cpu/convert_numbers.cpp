// Runs of numbers as numbers of another type: loops that the compiler makes vectors of, once for
// each vector target. Tile programs load and store by them.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/convert_numbers.cpp"
#include <algorithm>
#include <cstring>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "csrc/core/convert.h"
#include "hwy/highway.h"
#include "providers/cpu/convert.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

template <class From, class To>
void convert_run(const From* from, To* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = number_as<To>(from[i]);
}

// Of no halves. A bool is read as its byte: compilers make no vectors of bools.
void convert_plain(DType from, const void* x, DType to, void* y, int64_t count) {
  dispatch(from == DType::boolean ? DType::u8 : from, [&]<class From>() {
    dispatch(to, [&]<class To>() {
      convert_run(static_cast<const From*>(x), static_cast<To*>(y), count);
    });
  });
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
namespace {
HWY_EXPORT(convert_plain);

constexpr int64_t kRun = 256;  // of float32 between a half and another number

void convert_run(DType from, const char* x, DType to, char* y, int64_t count) {
  float between[kRun];
  if (is_half(from) && to == DType::f32) return widen(from, x, reinterpret_cast<float*>(y), count);
  if (from == DType::f32 && is_half(to))
    return narrow(reinterpret_cast<const float*>(x), to, y, count);
  if (!is_half(from) && !is_half(to))
    return HWY_DYNAMIC_DISPATCH(convert_plain)(from, x, to, y, count);
  for (int64_t i = 0; i < count; i += kRun) {
    const int64_t part = std::min(kRun, count - i);
    convert(from, x, i, DType::f32, between, 0, part);
    convert(DType::f32, between, 0, to, y, i, part);
  }
}

}  // namespace

void convert(DType from, const void* x, int64_t x_at, DType to, void* y, int64_t y_at,
             int64_t count) {
  const char* source = static_cast<const char*>(x) + x_at * static_cast<int64_t>(size_of(from));
  char* target = static_cast<char*>(y) + y_at * static_cast<int64_t>(size_of(to));
  if (count <= 0) return;
  if (from == to)
    std::memcpy(target, source, static_cast<size_t>(count) * size_of(to));
  else
    convert_run(from, source, to, target, count);
}
}  // namespace ort::cpu
#endif
