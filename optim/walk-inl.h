// A rule over vectors, for each target that its file is compiled for. Rule<T> has kLeast and kMost,
// the states it may have, a constructor of Factors and
//   step<N>(V& param, V grad, V* states): the new param and N states.
// One whose step needs the norm of its direction has, for squares_range,
//   direction(V param, V grad, V* states), which makes the new states.
// Where it also has
//   along(V param, V* states), the direction by the new states, and step_along(V param, V
//   direction),
// squares_range writes the states and the step reads no gradient, but for halves: what is computed
// goes on from states that are not rounded.
#if defined(ORT_OPTIM_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_OPTIM_WALK_INL_H_
#undef ORT_OPTIM_WALK_INL_H_
#else
#define ORT_OPTIM_WALK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "optim/places-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {

// x + decay * p, in a gradient or in what is taken from a parameter, whose step is then rounded
// once. Nothing is added where there is no decay, as an infinity times none is a NaN.
template <class T>
class Decay {
 public:
  explicit Decay(double decay) : is_any_(decay != 0), decay_(set<T>(decay)) {}
  HWY_INLINE V<T> added(V<T> p, V<T> x) const { return is_any_ ? hn::MulAdd(decay_, p, x) : x; }

 private:
  bool is_any_;
  V<T> decay_;
};

template <class Rule, class P>
concept MakesStatesFirst =
    std::is_same_v<typename P::S, typename P::T> &&
    requires(const Rule& rule, V<typename P::T> v) { rule.step_along(v, rule.along(v, &v)); };

// Parameter, gradient and N states at one place.
template <class P, int N>
struct Vectors {
  using T = typename P::T;
  V<T> param, grad, states[N > 0 ? N : 1];

  HWY_INLINE Vectors(const P& at, int64_t i) {
    param = at.load_param(i);
    grad = at.load_grad(i);
    for (int k = 0; k < N; ++k) states[k] = at.load_state(k, i);
  }
  HWY_INLINE void store_states(const P& at, int64_t i) const {
    for (int k = 0; k < N; ++k) at.store_state(states[k], k, i);
  }
  HWY_INLINE void store_param(const P& at, int64_t i) const {
    at.store_param(param, i);
    at.finish(param, i);
  }
};

template <int N, class P, class R>
HWY_INLINE void step_vector(const R& rule, const P& at, int64_t i) {
  Vectors<P, N> v(at, i);
  if constexpr (MakesStatesFirst<R, P>) {
    v.param = rule.step_along(v.param, rule.along(v.param, v.states));
  } else {
    rule.template step<N>(v.param, v.grad, v.states);
    v.store_states(at, i);
  }
  v.store_param(at, i);
}

// With as many states as there are.
template <template <class> class Rule, class P, int N = Rule<typename P::T>::kMost>
void step_places(const P at, const void* factors, int64_t i, int64_t end) {
  using R = Rule<typename P::T>;
  if constexpr (N > R::kLeast)
    if (!at.states[N - 1]) return step_places<Rule, P, N - 1>(at, factors, i, end);
  const R rule(*static_cast<const typename R::Factors*>(factors));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D<typename P::T>()));
  for (; i + lanes <= end; i += lanes) step_vector<N>(rule, at, i);
  if (i == end) return;
  Tail<P, N> tail(at, i, end - i);
  step_vector<N>(rule, tail.places, 0);
  tail.store(at, i, end - i);
}

template <template <class> class Rule>
void step_range(const Parameter& p, int64_t begin, int64_t end) {
  with_places(p, [&](auto at) { step_places<Rule, decltype(at)>(at, p.factors, begin, end); });
}

// Adds what the first `valid` lanes have.
template <class R, class P, class W>
HWY_INLINE void add_squares(const R& rule, const P& at, int64_t i, int64_t valid, W& param,
                            W& way) {
  const auto mask = hn::FirstN(D<typename P::T>(), static_cast<size_t>(valid));
  Vectors<P, R::kMost> v(at, i);
  const W direction = hn::IfThenElseZero(mask, rule.direction(v.param, v.grad, v.states));
  param = hn::MulAdd(v.param, v.param, param);
  way = hn::MulAdd(direction, direction, way);
  if constexpr (MakesStatesFirst<R, P>) v.store_states(at, i);
}

template <template <class> class Rule, class P>
void squares_places(const P at, const void* factors, int64_t i, int64_t end, Squares& sums) {
  using T = typename P::T;
  using R = Rule<T>;
  constexpr int64_t kRun = 1024;  // elements that are summed in T, the runs in double
  const D<T> d;
  const R rule(*static_cast<const typename R::Factors*>(factors));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  while (i < end) {
    const int64_t stop = std::min(i + kRun, end);
    V<T> param = hn::Zero(d), way = hn::Zero(d);
    for (; i + lanes <= stop; i += lanes) add_squares(rule, at, i, lanes, param, way);
    if (i < stop) {
      Tail<P, R::kMost> tail(at, i, stop - i);
      add_squares(rule, tail.places, 0, stop - i, param, way);
      tail.store(at, i, stop - i);
    }
    i = stop;
    sums.param += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, param)));
    sums.direction += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, way)));
  }
}

template <template <class> class Rule>
void squares_range(const Parameter& p, int64_t begin, int64_t end, Squares& sums) {
  with_places(
      p, [&](auto at) { squares_places<Rule, decltype(at)>(at, p.factors, begin, end, sums); });
}

}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
