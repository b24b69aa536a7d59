// Adam (Kingma and Ba, 2015, "Adam: A method for stochastic optimization") and AdamW (Loshchilov
// and Hutter, 2019, "Decoupled weight decay regularization").
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adam.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

template <class T>
class Adam {
 public:
  using Factors = AdamFactors;
  static constexpr int kLeast = 2, kMost = 3;

  explicit Adam(const Factors& f)
      : l2_(f.l2),
        decay_(f.decay),
        beta1_(set<T>(f.beta1)),
        beta2_(set<T>(f.beta2)),
        rest1_(set<T>(1.0 - f.beta1)),
        rest2_(set<T>(1.0 - f.beta2)),
        step_size_(set<T>(f.step_size)),
        second_root_(set<T>(f.second_root)),
        eps_(set<T>(f.eps)) {}

  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, V<T>* s) const {
    g = l2_.added(p, g);
    s[0] = hn::MulAdd(beta1_, s[0], hn::Mul(rest1_, g));
    s[1] = hn::MulAdd(beta2_, s[1], hn::Mul(hn::Mul(rest2_, g), g));
    if constexpr (N == 3) s[2] = larger(s[1], s[2]);
    const V<T> denominator = hn::Add(hn::Div(hn::Sqrt(s[N - 1]), second_root_), eps_);
    p = hn::Sub(p, decay_.added(p, hn::Mul(step_size_, hn::Div(s[0], denominator))));
  }

 private:
  // NaN where either is, as torch.maximum: a vector maximum alone may drop it.
  static HWY_INLINE V<T> larger(V<T> a, V<T> b) {
    const V<T> number = hn::IfThenElse(hn::Ge(a, b), a, b);
    return hn::IfThenElse(hn::Eq(a, a), number, a);
  }

  Decay<T> l2_, decay_;
  V<T> beta1_, beta2_, rest1_, rest2_, step_size_, second_root_, eps_;
};

void adam_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Adam>(p, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(adam_range);

}  // namespace

Range adam() {
  return HWY_DYNAMIC_DISPATCH(adam_range);
}

}  // namespace ort::optim
#endif
