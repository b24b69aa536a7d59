// LAMB (You et al., 2020, "Large batch optimization for deep learning", algorithm 2): the moments
// and the norms of parameter and direction first, then the step by their ratio, which reads no
// gradient.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/lamb.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

template <class T>
class Lamb {
 public:
  using Factors = LambFactors;
  static constexpr int kLeast = 2, kMost = 2;

  explicit Lamb(const Factors& f)
      : decay_(f.weight_decay),
        beta1_(set<T>(f.beta1)),
        beta2_(set<T>(f.beta2)),
        rest1_(set<T>(1.0 - f.beta1)),
        rest2_(set<T>(1.0 - f.beta2)),
        first_(set<T>(f.first)),
        second_root_(set<T>(f.second_root)),
        eps_(set<T>(f.eps)),
        rate_(set<T>(f.rate)) {}

  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, V<T>* s) const {
    p = step_along(p, direction(p, g, s));
  }

  HWY_INLINE V<T> direction(V<T> p, V<T> g, V<T>* s) const {
    s[0] = hn::MulAdd(beta1_, s[0], hn::Mul(rest1_, g));
    s[1] = hn::MulAdd(beta2_, s[1], hn::Mul(hn::Mul(rest2_, g), g));
    return along(p, s);
  }

  HWY_INLINE V<T> along(V<T> p, const V<T>* s) const {
    const V<T> denominator = hn::Add(hn::Div(hn::Sqrt(s[1]), second_root_), eps_);
    return decay_.added(p, hn::Div(hn::Mul(first_, s[0]), denominator));
  }
  HWY_INLINE V<T> step_along(V<T> p, V<T> u) const { return hn::NegMulAdd(rate_, u, p); }

 private:
  Decay<T> decay_;
  V<T> beta1_, beta2_, rest1_, rest2_, first_, second_root_, eps_, rate_;
};

void lamb_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Lamb>(p, begin, end);
}
void lamb_squares_range(const Parameter& p, int64_t begin, int64_t end, Squares& sums) {
  squares_range<Lamb>(p, begin, end, sums);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(lamb_range);
HWY_EXPORT(lamb_squares_range);

}  // namespace

Range lamb() {
  return HWY_DYNAMIC_DISPATCH(lamb_range);
}
SquaresRange lamb_squares() {
  return HWY_DYNAMIC_DISPATCH(lamb_squares_range);
}

}  // namespace ort::optim
#endif
