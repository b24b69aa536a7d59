// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/images/resize_pass.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/images/resize_pass.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// y[i] = sum over k of weights[k] * x[k * inner + i], by so many taps: 0 stands for any number.
template <int kTaps, class T>
HWY_INLINE void weigh(const T* x, const T* weights, int64_t taps, int64_t inner, T* y) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (kTaps > 0) taps = kTaps;
  const auto at = [&](int64_t i) HWY_ATTR {
    auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, x + i));
    for (int64_t k = 1; k < taps; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, x + k * inner + i), sum);
    hn::StoreU(sum, d, y + i);
  };
  int64_t i = 0;
  for (; i + lanes <= inner; i += lanes) at(i);
  if (i < inner && inner >= lanes) return at(inner - lanes);  // some of them once more
  for (; i < inner; ++i) {
    T sum = weights[0] * x[i];
    for (int64_t k = 1; k < taps; ++k) sum += weights[k] * x[k * inner + i];
    y[i] = sum;
  }
}

template <class T>
HWY_INLINE void weigh_rows(const ResizePass<T>& p, const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const auto o = static_cast<size_t>(row % p.out);
    const T* from = x + (row / p.out * p.in + p.first[o]) * p.inner;
    const T* weights = p.weights.data() + p.begin[o];
    const int64_t taps = p.begin[o + 1] - p.begin[o];
    T* to = y + row * p.inner;
    if (taps == 0)
      std::fill_n(to, p.inner, T{});
    else if (taps == 1)
      weigh<1>(from, weights, taps, p.inner, to);
    else if (taps == 2)
      weigh<2>(from, weights, taps, p.inner, to);
    else if (taps == 4)
      weigh<4>(from, weights, taps, p.inner, to);
    else
      weigh<0>(from, weights, taps, p.inner, to);
  }
}

// Along a line, position by position.
template <class T>
HWY_INLINE void weigh_positions(const ResizePass<T>& p, const T* x, T* y, int64_t from,
                                int64_t end) {
  for (int64_t o = from; o < end; ++o) {
    const auto at = static_cast<size_t>(o);
    const T* place = x + p.first[at];
    T sum{};
    for (int64_t k = p.begin[at]; k < p.begin[at + 1]; ++k)
      sum += p.weights[static_cast<size_t>(k)] * *place++;
    y[o] = sum;
  }
}

template <class T>
HWY_INLINE void weigh_line(const ResizePass<T>& p, const T* x, T* y) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  weigh_positions(p, x, y, 0, p.even_begin);
  int64_t o = p.even_begin;
  for (; o + lanes <= p.even_end; o += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t k = 0; k < p.taps; ++k) {
      const auto place = hn::LoadU(di, p.line_places.data() + k * p.out + o);
      const auto weight = hn::LoadU(d, p.line_weights.data() + k * p.out + o);
      sum = hn::MulAdd(weight, hn::GatherIndex(d, x, place), sum);
    }
    hn::StoreU(sum, d, y + o);
  }
  weigh_positions(p, x, y, o, p.out);
}

template <class T>
HWY_INLINE void run_pass(const ResizePass<T>& p, const T* x, T* y, int64_t begin, int64_t end) {
  if (p.inner > 1) return weigh_rows(p, x, y, begin, end);
  for (int64_t line = begin; line < end; ++line) weigh_line(p, x + line * p.in, y + line * p.out);
}

void run_floats(const ResizePass<float>& p, const float* x, float* y, int64_t begin, int64_t end) {
  run_pass(p, x, y, begin, end);
}
void run_doubles(const ResizePass<double>& p, const double* x, double* y, int64_t begin,
                 int64_t end) {
  run_pass(p, x, y, begin, end);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(run_floats);
HWY_EXPORT(run_doubles);

template <class T>
ResizePass<T>::ResizePass(const AxisMap& map, int64_t outer, int64_t inner)
    : outer(outer),
      in(map.in),
      out(map.out()),
      inner(inner),
      first(map.first),
      begin(map.begin),
      weights(map.weights.begin(), map.weights.end()),
      taps(map.most_taps()) {
  if (inner == 1) find_even(map);
}

template <class T>
void ResizePass<T>::find_even(const AxisMap& map) {
  constexpr int64_t kFew = 16;
  if (taps > kFew) return;
  for (int64_t o = 0, start = 0; o < out; ++o) {
    if (map.taps(o) != taps)
      start = o + 1;
    else if (o + 1 - start > even_end - even_begin)
      even_begin = start, even_end = o + 1;
  }
  line_weights.assign(static_cast<size_t>(taps * out), T{});
  line_places.assign(static_cast<size_t>(taps * out), 0);
  for (int64_t o = even_begin; o < even_end; ++o)
    for (int64_t k = 0; k < taps; ++k) {
      const auto to = static_cast<size_t>(k * out + o), at = static_cast<size_t>(o);
      line_weights[to] = weights[static_cast<size_t>(begin[at] + k)];
      line_places[to] = static_cast<typename decltype(line_places)::value_type>(first[at] + k);
    }
}

template <class T>
void ResizePass<T>::run(const T* x, T* y, int64_t begin_row, int64_t end_row) const {
  if constexpr (sizeof(T) == 4)
    HWY_DYNAMIC_DISPATCH(run_floats)(*this, x, y, begin_row, end_row);
  else
    HWY_DYNAMIC_DISPATCH(run_doubles)(*this, x, y, begin_row, end_row);
}

template struct ResizePass<float>;
template struct ResizePass<double>;
}  // namespace ort::cpu
#endif
