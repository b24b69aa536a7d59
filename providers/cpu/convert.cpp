// Conversions of runs, written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/convert.cpp"
#include <cstring>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/convert.h"
#include "providers/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

// Calls f(from, to) for whole vectors; the last, partial one goes through buffers.
template <class From, class To, class F>
HWY_INLINE void each_vector(const From* from, To* to, int64_t count, F f) {
  constexpr size_t kMost = hn::MaxLanes(hn::ScalableTag<float>());
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(from + i, to + i);
  if (i == count) return;
  From source[kMost] = {};
  To target[kMost];
  std::memcpy(source, from + i, static_cast<size_t>(count - i) * sizeof(From));
  f(source, target);
  std::memcpy(to + i, target, static_cast<size_t>(count - i) * sizeof(To));
}

void widen(bool bfloat, const uint16_t* from, float* to, int64_t count) {
  const hn::ScalableTag<float> d;
  if (bfloat)
    each_vector(from, to, count,
                [d](const uint16_t* x, float* y) HWY_ATTR { hn::StoreU(load_bf16(d, x), d, y); });
  else
    each_vector(from, to, count,
                [d](const uint16_t* x, float* y) HWY_ATTR { hn::StoreU(load_f16(d, x), d, y); });
}

void narrow(const float* from, bool bfloat, uint16_t* to, int64_t count) {
  const hn::ScalableTag<float> d;
  if (bfloat)
    each_vector(from, to, count,
                [d](const float* x, uint16_t* y) HWY_ATTR { store_bf16(d, hn::LoadU(d, x), y); });
  else
    each_vector(from, to, count,
                [d](const float* x, uint16_t* y) HWY_ATTR { store_f16(d, hn::LoadU(d, x), y); });
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void widen(DType half, const void* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(widen)
  (half == DType::bf16, static_cast<const uint16_t*>(from), to, count);
}
void narrow(const float* from, DType half, void* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(narrow)(from, half == DType::bf16, static_cast<uint16_t*>(to), count);
}
}  // namespace ort::cpu
#endif
