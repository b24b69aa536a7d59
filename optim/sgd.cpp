// Stochastic gradient descent with momentum (Sutskever et al., 2013, "On the importance of
// initialization and momentum in deep learning"), as torch.optim.SGD has it.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/sgd.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

template <class T>
class Sgd {
 public:
  using Factors = SgdFactors;
  static constexpr int kLeast = 0, kMost = 1;

  explicit Sgd(const Factors& f)
      : nesterov_(f.nesterov),
        l2_(f.l2),
        momentum_(set<T>(f.momentum)),
        rest_(set<T>(f.rest)),
        lr_(set<T>(f.lr)) {}

  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, [[maybe_unused]] V<T>* s) const {
    g = l2_.added(p, g);
    if constexpr (N == 1) {
      s[0] = hn::MulAdd(momentum_, s[0], hn::Mul(rest_, g));
      g = nesterov_ ? hn::MulAdd(momentum_, s[0], g) : s[0];
    }
    p = hn::NegMulAdd(lr_, g, p);
  }

 private:
  bool nesterov_;
  Decay<T> l2_;
  V<T> momentum_, rest_, lr_;
};

void sgd_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Sgd>(p, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(sgd_range);

}  // namespace

Range sgd() {
  return HWY_DYNAMIC_DISPATCH(sgd_range);
}

}  // namespace ort::optim
#endif
