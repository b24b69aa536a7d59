// Where the vectors of a parameter lie, for each target: floats, doubles, halves, halves with a
// master.
#if defined(ORT_OPTIM_PLACES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_OPTIM_PLACES_INL_H_
#undef ORT_OPTIM_PLACES_INL_H_
#else
#define ORT_OPTIM_PLACES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "optim/drive.h"
#include "providers/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace half = cpu::HWY_NAMESPACE;

template <class T>
using D = hn::ScalableTag<T>;
template <class T>
using V = hn::Vec<D<T>>;

template <class T>
HWY_INLINE V<T> set(double value) {
  return hn::Set(D<T>(), static_cast<T>(value));
}

// Elements as they lie in memory, M, and as a step is computed, T.
template <class M>
struct Memory {
  using T = M;
  static HWY_INLINE V<T> load(const M* p) { return hn::LoadU(D<T>(), p); }
  static HWY_INLINE void store(V<T> x, M* p) { hn::StoreU(x, D<T>(), p); }
};

struct Bfloat16 {
  uint16_t bits;
};
template <>
struct Memory<Bfloat16> {
  using T = float;
  static HWY_INLINE V<T> load(const Bfloat16* p) { return half::load_bf16(D<T>(), &p->bits); }
  static HWY_INLINE void store(V<T> x, Bfloat16* p) { half::store_bf16(D<T>(), x, &p->bits); }
  static HWY_INLINE V<T> round(V<T> x) { return half::round_to_bf16(D<T>(), x); }
};

struct Float16 {
  uint16_t bits;
};
template <>
struct Memory<Float16> {
  using T = float;
  static HWY_INLINE V<T> load(const Float16* p) { return half::load_f16(D<T>(), &p->bits); }
  static HWY_INLINE void store(V<T> x, Float16* p) { half::store_f16(D<T>(), x, &p->bits); }
  static HWY_INLINE V<T> round(V<T> x) { return half::round_to_f16(D<T>(), x); }
};

// Of one parameter; kMaster: it is its master rounded, and the states are float32.
template <class Element, bool kMaster>
struct Places {
  using M = Element;
  using T = typename Memory<M>::T;
  using S = std::conditional_t<kMaster, float, M>;
  M *param, *grad;
  float* master;
  S* states[kStates];
  S* mean;
  double grad_factor, mean_rest;
  bool zero_grad;

  HWY_INLINE V<T> load_grad(int64_t i) const {
    return hn::Mul(set<T>(grad_factor), Memory<M>::load(grad + i));
  }
  HWY_INLINE V<T> load_state(int k, int64_t i) const { return Memory<S>::load(states[k] + i); }
  HWY_INLINE void store_state(V<T> x, int k, int64_t i) const {
    Memory<S>::store(x, states[k] + i);
  }
  HWY_INLINE V<T> load_param(int64_t i) const {
    const V<T> p = Memory<M>::load(param + i);
    if constexpr (kMaster) {
      // What is no rounded master was written since the last step: the master goes on from there.
      const V<T> wide = hn::LoadU(D<T>(), master + i);
      return hn::IfThenElse(hn::Eq(Memory<M>::round(wide), p), wide, p);
    }
    return p;
  }
  HWY_INLINE void store_param(V<T> x, int64_t i) const {
    if constexpr (kMaster) hn::StoreU(x, D<T>(), master + i);
    Memory<M>::store(x, param + i);
  }
  // What is left of a step at one place: `x` is the new parameter.
  HWY_INLINE void finish(V<T> x, int64_t i) const {
    if (mean) {
      const V<T> old = Memory<S>::load(mean + i);
      Memory<S>::store(hn::MulAdd(set<T>(mean_rest), hn::Sub(x, old), old), mean + i);
    }
    if (zero_grad) Memory<M>::store(hn::Zero(D<T>()), grad + i);
  }
};

template <class P>
P places_of(const Parameter& p) {
  using M = typename P::M;
  using S = typename P::S;
  P at{static_cast<M*>(p.param), static_cast<M*>(p.grad), p.master,    {},
       static_cast<S*>(p.mean),  p.grad_factor,           p.mean_rest, p.zero_grad};
  for (int k = 0; k < kStates; ++k) at.states[k] = static_cast<S*>(p.states[k]);
  return at;
}

// Calls f(places).
template <class F>
void with_places(const Parameter& p, F f) {
  if (p.dtype == DType::f32) return f(places_of<Places<float, false>>(p));
  if (p.dtype == DType::f64) return f(places_of<Places<double, false>>(p));
  if (p.dtype == DType::f16 && p.master) return f(places_of<Places<Float16, true>>(p));
  if (p.dtype == DType::f16) return f(places_of<Places<Float16, false>>(p));
  if (p.master) return f(places_of<Places<Bfloat16, true>>(p));
  f(places_of<Places<Bfloat16, false>>(p));
}

// The last, partial vector goes through buffers: masked loads may fault on older targets.
template <class P, int N>
struct Tail {
  static constexpr size_t kLanes = hn::MaxLanes(D<typename P::T>());
  typename P::M param[kLanes] = {}, grad[kLanes] = {};
  float master[kLanes] = {};
  typename P::S states[N > 0 ? N : 1][kLanes] = {}, mean[kLanes] = {};
  P places;

  Tail(const P& at, int64_t i, int64_t n) : places(at) {
    places.param = param;
    places.grad = grad;
    places.master = master;
    copy(at.param + i, param, n);
    copy(at.grad + i, grad, n);
    if (at.master) copy(at.master + i, master, n);
    for (int k = 0; k < N; ++k) {
      copy(at.states[k] + i, states[k], n);
      places.states[k] = states[k];
    }
    if (!at.mean) return;
    copy(at.mean + i, mean, n);
    places.mean = mean;
  }
  Tail(const Tail&) = delete;  // places point into it

  void store(const P& at, int64_t i, int64_t n) const {
    copy(param, at.param + i, n);
    if (at.master) copy(master, at.master + i, n);
    for (int k = 0; k < N; ++k) copy(states[k], at.states[k] + i, n);
    if (at.mean) copy(mean, at.mean + i, n);
    if (at.zero_grad) copy(grad, at.grad + i, n);
  }

 private:
  template <class E>
  static void copy(const E* from, E* to, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(E));
  }
};

}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
