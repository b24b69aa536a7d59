// Halves in vectors, for each target that Highway compiles: float32 rounded to nearest even, what
// is too large becomes an infinity, NaN stays NaN. Included by SIMD files after Highway.
#if defined(ORT_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_HALF_INL_H_
#undef ORT_HALF_INL_H_
#else
#define ORT_HALF_INL_H_
#endif

#include "csrc/core/tensor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A bfloat16's bits are the upper ones of the word.
template <class D, class V>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bfloat_word(D, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
}

template <class D, class V>
HWY_INLINE V round_to_bf16(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::And(bfloat_word(d, x), hn::Set(du, 0xffff0000u)));
}

// Lanes of d from and to memory.
template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::LoadU(hn::Rebind<uint16_t, D>(), p);
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
template <class D, class V>
HWY_INLINE void store_bf16(D d, V x, uint16_t* p) {
  const hn::Rebind<uint16_t, D> dn;
  hn::StoreU(hn::TruncateTo(dn, hn::ShiftRight<16>(bfloat_word(d, x))), dn, p);
}

#if HWY_TARGET <= HWY_AVX2
template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const uint16_t* p) {
  const hn::Rebind<hwy::float16_t, D> dn;
  return hn::PromoteTo(d, hn::BitCast(dn, hn::LoadU(hn::Rebind<uint16_t, D>(), p)));
}
template <class D, class V>
HWY_INLINE void store_f16(D, V x, uint16_t* p) {
  const hn::Rebind<uint16_t, D> dn;
  hn::StoreU(hn::BitCast(dn, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x)), dn, p);
}
#else  // no instruction does it
template <class D>
HWY_INLINE hn::Vec<D> load_f16(D d, const uint16_t* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = half_to_float(p[i]);
  return hn::Load(d, lanes);
}
template <class D, class V>
HWY_INLINE void store_f16(D d, V x, uint16_t* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = float_to_half(lanes[i]);
}
#endif

template <class D, class V>
HWY_INLINE V round_to_f16(D d, V x) {
  uint16_t halves[hn::MaxLanes(D())];
  store_f16(d, x, halves);
  return load_f16(d, halves);
}

}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
