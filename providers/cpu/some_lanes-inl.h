// The last, incomplete vector of a run, once for each vector target. Included by SIMD files after
// Highway.
#if defined(ORT_CPU_SOME_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_CPU_SOME_LANES_INL_H_
#undef ORT_CPU_SOME_LANES_INL_H_
#else
#define ORT_CPU_SOME_LANES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

// The first `there` lanes; the others are zero, and their memory is not touched: where the
// processor has no masks, Highway's MaskedLoad reads it all.
template <class T>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<T>> load_some(const T* from,
                                                                                 int64_t there) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  if (there >= kLanes) return hn::LoadU(d, from);
  if constexpr (kLanes * sizeof(T) > 16)
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(there)), d, from);
  T lanes[kLanes] = {};
  std::copy_n(from, there, lanes);
  return hn::LoadU(d, lanes);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
