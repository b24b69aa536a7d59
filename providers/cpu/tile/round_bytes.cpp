// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile/round_bytes.cpp"
#include <cstring>

#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/tile/round_bytes.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <class Byte>
void rounded(const float* x, int64_t count, const ByteRounding& how, Byte* y) {
  const D d;
  const hn::Rebind<int32_t, D> integers;
  const hn::Rebind<Byte, D> bytes;
  const V divisor = hn::Set(d, how.divisor), zero = hn::Set(d, how.zero);
  const V low = hn::Set(d, how.low), high = hn::Set(d, how.high);
  const bool divides = how.divisor != 1.0f;
  const auto byte_of = [&](V v) HWY_ATTR {
    if (divides) v = hn::Div(v, divisor);
    const V moved = hn::Add(hn::Round(v), zero);
    const V clipped = hn::IfThenElseZero(hn::Eq(v, v), hn::Min(hn::Max(moved, low), high));
    return hn::DemoteTo(bytes, hn::ConvertTo(integers, clipped));
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(byte_of(hn::LoadU(d, x + i)), bytes, y + i);
  if (i == count) return;
  HWY_ALIGN float last[hn::MaxLanes(D())] = {};
  HWY_ALIGN Byte made[hn::MaxLanes(D())];
  std::memcpy(last, x + i, static_cast<size_t>(count - i) * sizeof(float));
  hn::Store(byte_of(hn::Load(d, last)), bytes, made);
  std::memcpy(y + i, made, static_cast<size_t>(count - i));
}

void of_unsigned(const float* x, int64_t count, const ByteRounding& how, uint8_t* y) {
  rounded(x, count, how, y);
}
void of_signed(const float* x, int64_t count, const ByteRounding& how, int8_t* y) {
  rounded(x, count, how, y);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(of_unsigned);
HWY_EXPORT(of_signed);
void round_to_bytes(const float* x, int64_t count, const ByteRounding& how, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(of_unsigned)(x, count, how, y);
}
void round_to_bytes(const float* x, int64_t count, const ByteRounding& how, int8_t* y) {
  HWY_DYNAMIC_DISPATCH(of_signed)(x, count, how, y);
}
}  // namespace ort::cpu
#endif
