// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/conv/maxima.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/conv/maxima.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using I = hn::RebindToSigned<D>;

template <class F>
HWY_INLINE int64_t whole_vectors(F tap, int64_t stride, int32_t place, int64_t count, float* best,
                                 int32_t* at) {
  const D d;
  const I di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto step = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
  int64_t c = 0;
  // The last window is not among them: of pairs a vector reads one number beyond its own.
  for (; c + lanes < count; c += lanes) {
    const auto value = tap(c), most = hn::LoadU(d, best + c);
    const auto where = hn::LoadU(di, at + c);
    const auto first = hn::RebindMask(d, hn::Lt(where, hn::Zero(di)));
    const auto taken = hn::Or(hn::Or(hn::Gt(value, most), hn::IsNaN(value)), first);
    const auto here = hn::Add(step, hn::Set(di, static_cast<int32_t>(place + c * stride)));
    hn::StoreU(hn::IfThenElse(taken, value, most), d, best + c);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(di, taken), here, where), di, at + c);
  }
  return c;
}

void take_maxima(const float* from, int64_t stride, int32_t place, int64_t count, float* best,
                 int32_t* at) {
  const D d;
  const auto single = [&](int64_t c) HWY_ATTR { return hn::LoadU(d, from + c); };
  const auto pairs = [&](int64_t c) HWY_ATTR {
    hn::Vec<D> even, odd;
    hn::LoadInterleaved2(d, from + 2 * c, even, odd);
    return even;
  };
  int64_t c = stride == 1   ? whole_vectors(single, 1, place, count, best, at)
              : stride == 2 ? whole_vectors(pairs, 2, place, count, best, at)
                            : 0;
  for (; c < count; ++c) {
    const float value = from[c * stride];
    if (at[c] >= 0 && !(value > best[c]) && value == value) continue;
    best[c] = value;
    at[c] = static_cast<int32_t>(place + c * stride);
  }
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(take_maxima);

void take_maxima(const float* from, int64_t stride, int32_t place, int64_t count, float* best,
                 int32_t* at) {
  HWY_DYNAMIC_DISPATCH(take_maxima)(from, stride, place, count, best, at);
}
}  // namespace ort::cpu
#endif
