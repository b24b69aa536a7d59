// Muon (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks"): the
// momentum and the step. What lies between them, products of matrices, is in orthogonal.cpp.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/muon.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/rules.h"
#include "optim/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

// The parameter stays; the second state is the direction before it is made orthogonal.
template <class T>
class Momentum {
 public:
  using Factors = MuonFactors;
  static constexpr int kLeast = 2, kMost = 2;

  explicit HWY_INLINE Momentum(const Factors& f)
      : nesterov_(f.nesterov), momentum_(set<T>(f.momentum)), rest_(set<T>(1.0 - f.momentum)) {}
  template <int N>
  HWY_INLINE void step(V<T>&, V<T> g, V<T>* s) const {
    s[0] = hn::MulAdd(rest_, hn::Sub(g, s[0]), s[0]);
    s[1] = nesterov_ ? hn::MulAdd(momentum_, hn::Sub(s[0], g), g) : s[0];
  }

 private:
  bool nesterov_;
  V<T> momentum_, rest_;
};

// The gradient is the orthogonal direction.
template <class T>
class Along {
 public:
  using Factors = MuonFactors;
  static constexpr int kLeast = 0, kMost = 0;

  explicit HWY_INLINE Along(const Factors& f) : decay_(f.decay), rate_(set<T>(f.rate)) {}
  template <int N>
  HWY_INLINE void step(V<T>& p, V<T> g, V<T>*) const {
    p = hn::Sub(p, decay_.added(p, hn::Mul(rate_, g)));
  }

 private:
  Decay<T> decay_;
  V<T> rate_;
};

void momentum_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Momentum>(p, begin, end);
}
void along_range(const Parameter& p, int64_t begin, int64_t end) {
  step_range<Along>(p, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(momentum_range);
HWY_EXPORT(along_range);

}  // namespace

Range muon_momentum() {
  return HWY_DYNAMIC_DISPATCH(momentum_range);
}
Range muon() {
  return HWY_DYNAMIC_DISPATCH(along_range);
}

}  // namespace ort::optim
#endif
