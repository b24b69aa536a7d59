// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile/round_bytes.cpp"
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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

// By products, where these give the bytes that quotients do. Up to 2^10 a product with the inverse
// is less than 2^-12 from the quotient, so both have the same nearest integer unless the product is
// about as near to a half: then it is divided after all. What was clipped is rounded by a sum with
// 1.5 * 2^23, whose last bits are the integer.
constexpr float kFar = 0x1p10f, kNearHalf = 0.5f - 0x1p-11f, kShift = 0x1.8p23f;

template <class Byte>
class ByProduct {
 public:
  static bool can(const ByteRounding& how) {
    using Limits = std::numeric_limits<Byte>;
    const auto is_small = [](float x) { return std::abs(x) < kFar / 2 && x == std::floor(x); };
    return is_small(how.zero) && how.low >= Limits::min() && how.high <= Limits::max() &&
           is_small(how.low) && is_small(how.high) && std::isnormal(1 / how.divisor);
  }
  explicit ByProduct(const ByteRounding& how)
      : divisor_(hn::Set(D(), how.divisor)),
        inverse_(hn::Set(D(), 1 / how.divisor)),
        low_(hn::Set(D(), how.low - how.zero)),
        high_(hn::Set(D(), how.high - how.zero)),
        near_half_(hn::Set(D(), how.divisor == 1 ? 1.0f : kNearHalf)),
        zero_(static_cast<int32_t>(how.zero) - std::bit_cast<int32_t>(kShift)) {}

  // kAtOnce vectors, whose only branch is whether one of them has to be divided.
  HWY_INLINE void run(const float* x, Byte* y) const {
    const D d;
    V farthest = hn::Zero(d);
    const auto each = [&](int64_t i) HWY_ATTR {
      const V v = hn::LoadU(d, x + i), q = clipped(hn::Mul(v, inverse_)), sum = shifted(q);
      farthest = hn::Max(farthest, hn::Abs(hn::Sub(q, hn::Sub(sum, hn::Set(d, kShift)))));
      put(sum, v, y + i);
    };
    each(0);
    each(kLanes);
    each(2 * kLanes);
    each(3 * kLanes);
    if (hn::AllFalse(d, hn::Gt(farthest, near_half_))) return;
    for (int64_t i = 0; i < kAtOnce; i += kLanes) {
      const V v = hn::LoadU(d, x + i);
      put(shifted(clipped(hn::Div(v, divisor_))), v, y + i);
    }
  }
  static constexpr int64_t kLanes = hn::MaxLanes(D()), kAtOnce = 4 * kLanes;

 private:
  HWY_INLINE V clipped(V q) const { return hn::Min(hn::Max(q, low_), high_); }
  HWY_INLINE V shifted(V q) const { return hn::Add(q, hn::Set(D(), kShift)); }
  HWY_INLINE void put(V sum, V x, Byte* y) const {
    const hn::RebindToUnsigned<D> bits;
    const hn::Rebind<uint8_t, D> bytes;
    const auto integer =
        hn::Add(hn::BitCast(bits, sum), hn::Set(bits, static_cast<uint32_t>(zero_)));
    const auto there = hn::RebindMask(bits, hn::Eq(x, x));
    hn::StoreU(hn::TruncateTo(bytes, hn::IfThenElseZero(there, integer)), bytes,
               reinterpret_cast<uint8_t*>(y));
  }
  V divisor_, inverse_, low_, high_, near_half_;
  int32_t zero_;
};

// A vector at a time, whatever the numbers are.
template <class Byte>
class ByQuotient {
 public:
  explicit ByQuotient(const ByteRounding& how)
      : divisor_(hn::Set(D(), how.divisor)),
        zero_(hn::Set(D(), how.zero)),
        low_(hn::Set(D(), how.low)),
        high_(hn::Set(D(), how.high)) {}
  HWY_INLINE void run(const float* x, Byte* y) const {
    const D d;
    const hn::Rebind<Byte, D> bytes;
    const V q = hn::Div(hn::LoadU(d, x), divisor_), moved = hn::Add(hn::Round(q), zero_);
    const V clipped = hn::IfThenElseZero(hn::Eq(q, q), hn::Min(hn::Max(moved, low_), high_));
    hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(hn::Rebind<int32_t, D>(), clipped)), bytes, y);
  }
  static constexpr int64_t kAtOnce = hn::MaxLanes(D());

 private:
  V divisor_, zero_, low_, high_;
};

template <class Rounding, class Byte>
void rounded_by(const float* x, int64_t count, const ByteRounding& how, Byte* y) {
  const Rounding rounding(how);
  int64_t i = 0;
  for (; i + rounding.kAtOnce <= count; i += rounding.kAtOnce) rounding.run(x + i, y + i);
  if (i == count) return;
  HWY_ALIGN float last[Rounding::kAtOnce] = {};
  HWY_ALIGN Byte made[Rounding::kAtOnce];
  std::memcpy(last, x + i, static_cast<size_t>(count - i) * sizeof(float));
  rounding.run(last, made);
  std::memcpy(y + i, made, static_cast<size_t>(count - i));
}

template <class Byte>
void rounded(const float* x, int64_t count, const ByteRounding& how, Byte* y) {
  if (ByProduct<Byte>::can(how)) return rounded_by<ByProduct<Byte>>(x, count, how, y);
  rounded_by<ByQuotient<Byte>>(x, count, how, y);
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
