// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile/read_bytes.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/tile/read_bytes.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class Byte>
void read(const Byte* x, int64_t count, float zero, float scale, float* y) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<int32_t, decltype(d)> integers;
  const hn::Rebind<Byte, decltype(d)> bytes;
  const auto centre = hn::Set(d, zero), factor = hn::Set(d, scale);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto number = hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(bytes, x + i)));
    hn::StoreU(hn::Mul(hn::Sub(number, centre), factor), d, y + i);
  }
  for (; i < count; ++i) y[i] = (static_cast<float>(x[i]) - zero) * scale;
}

void of_unsigned(const uint8_t* x, int64_t count, float zero, float scale, float* y) {
  read(x, count, zero, scale, y);
}
void of_signed(const int8_t* x, int64_t count, float zero, float scale, float* y) {
  read(x, count, zero, scale, y);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(of_unsigned);
HWY_EXPORT(of_signed);
void read_bytes(const uint8_t* x, int64_t count, float zero, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(of_unsigned)(x, count, zero, scale, y);
}
void read_bytes(const int8_t* x, int64_t count, float zero, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(of_signed)(x, count, zero, scale, y);
}
}  // namespace ort::cpu
#endif
