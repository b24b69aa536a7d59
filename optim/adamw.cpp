// The AdamW update (Loshchilov and Hutter, 2019, "Decoupled weight decay regularization"), written
// once with Highway for float and double and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adamw.cpp"
#include <cstring>
#include <type_traits>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "optim/adamw.h"
#include "optim/pieces.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class Update {
 public:
  explicit Update(const AdamWFactors& f)
      : decay_(set(f.decay)),
        sign_(set(f.maximize ? -1.0 : 1.0)),
        beta1_(set(f.beta1)),
        beta2_(set(f.beta2)),
        rest1_(set(1.0 - f.beta1)),
        rest2_(set(1.0 - f.beta2)),
        step_size_(set(f.step_size)),
        second_root_(set(f.second_root)),
        eps_(set(f.eps)) {}

  HWY_INLINE void range(const AdamWTensors<T>& t, int64_t i, int64_t end) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
    T* max = t.max_exp_avg_sq;
    for (; i + lanes <= end; i += lanes)
      vector(t.param + i, t.grad + i, t.exp_avg + i, t.exp_avg_sq + i, max ? max + i : nullptr);
    if (i < end) part(t, i, end - i);
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static V set(double value) { return hn::Set(D(), static_cast<T>(value)); }

  HWY_INLINE void vector(T* param, const T* grad, T* exp_avg, T* exp_avg_sq, T* max) const {
    const D d;
    const V g = hn::Mul(sign_, hn::LoadU(d, grad));
    const V m = hn::MulAdd(beta1_, hn::LoadU(d, exp_avg), hn::Mul(rest1_, g));
    V v = hn::MulAdd(beta2_, hn::LoadU(d, exp_avg_sq), hn::Mul(hn::Mul(rest2_, g), g));
    hn::StoreU(m, d, exp_avg);
    hn::StoreU(v, d, exp_avg_sq);
    if (max) {
      v = larger(v, hn::LoadU(d, max));
      hn::StoreU(v, d, max);
    }
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), second_root_), eps_);
    const V p = hn::Mul(decay_, hn::LoadU(d, param));
    hn::StoreU(hn::NegMulAdd(step_size_, hn::Div(m, denominator), p), d, param);
  }

  // NaN where either is, as torch.maximum: a vector maximum alone may drop it.
  static HWY_INLINE V larger(V a, V b) {
    const V number = hn::IfThenElse(hn::Ge(a, b), a, b);
    return hn::IfThenElse(hn::Eq(a, a), number, a);
  }

  // The last, partial vector goes through buffers: masked loads may fault on older targets.
  HWY_INLINE void part(const AdamWTensors<T>& t, int64_t i, int64_t n) const {
    HWY_ALIGN T buffer[5][hn::MaxLanes(D())] = {};
    T* const tensors[5] = {t.param, const_cast<T*>(t.grad), t.exp_avg, t.exp_avg_sq,
                           t.max_exp_avg_sq};
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    for (int k = 0; k < 5; ++k)
      if (tensors[k]) std::memcpy(buffer[k], tensors[k] + i, bytes);
    vector(buffer[0], buffer[1], buffer[2], buffer[3], t.max_exp_avg_sq ? buffer[4] : nullptr);
    for (const int k : {0, 2, 3, 4})
      if (tensors[k]) std::memcpy(tensors[k] + i, buffer[k], bytes);
  }

  V decay_, sign_, beta1_, beta2_, rest1_, rest2_, step_size_, second_root_, eps_;
};

void range_f32(const AdamWTensors<float>& t, int64_t begin, int64_t end) {
  Update<float>(t.factors).range(t, begin, end);
}
void range_f64(const AdamWTensors<double>& t, int64_t begin, int64_t end) {
  Update<double>(t.factors).range(t, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(range_f32);
HWY_EXPORT(range_f64);

}  // namespace

void adamw(std::span<const AdamWTensors<float>> tensors) {
  for_pieces(tensors, HWY_DYNAMIC_DISPATCH(range_f32));
}
void adamw(std::span<const AdamWTensors<double>> tensors) {
  for_pieces(tensors, HWY_DYNAMIC_DISPATCH(range_f64));
}
void adamw_range(const AdamWTensors<float>& tensors, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(range_f32)(tensors, begin, end);
}

}  // namespace ort::optim
#endif
