// Lion (Chen et al., 2023, "Symbolic discovery of optimization algorithms", algorithm 2).
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/lion.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

template <class T>
class Lion {
 public:
  using Factors = LionFactors;
  static constexpr int kLeast = 1, kMost = 1;

  explicit Lion(const Factors& f)
      : decay_(f.decay),
        beta1_(set<T>(f.beta1)),
        beta2_(set<T>(f.beta2)),
        rest1_(set<T>(1.0 - f.beta1)),
        rest2_(set<T>(1.0 - f.beta2)),
        lr_(set<T>(f.lr)) {}

  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, V<T>* s) const {
    const V<T> direction = sign_of(hn::MulAdd(beta1_, s[0], hn::Mul(rest1_, g)));
    s[0] = hn::MulAdd(beta2_, s[0], hn::Mul(rest2_, g));
    p = hn::Sub(p, decay_.added(p, hn::Mul(lr_, direction)));
  }

 private:
  // Of zero a zero; of NaN a NaN, where torch.sign has 0 and would hide it.
  static HWY_INLINE V<T> sign_of(V<T> x) {
    const V<T> none = hn::Zero(D<T>());
    const V<T> down = hn::IfThenElse(hn::Lt(x, none), set<T>(-1.0), x);
    return hn::IfThenElse(hn::Gt(x, none), set<T>(1.0), down);
  }

  Decay<T> decay_;
  V<T> beta1_, beta2_, rest1_, rest2_, lr_;
};

void lion_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Lion>(p, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(lion_range);

}  // namespace

Range lion() {
  return HWY_DYNAMIC_DISPATCH(lion_range);
}

}  // namespace ort::optim
#endif
