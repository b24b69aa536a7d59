// Softmax rows and their gradients with Highway, once per vector target.
#include "providers/cpu/attention/attention_rows.h"

#include <algorithm>
#include <cmath>

#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/attention/attention_rows.cpp"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/philox-inl.h"
#include "providers/cpu/some_lanes-inl.h"
#include "providers/cpu/tile/vec_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Lanes of a row: all, or the first so many, after which loads give `rest`.
struct All {
  V load(const float* x) const { return hn::LoadU(D(), x); }
  V load(const float* x, V /*rest*/) const { return load(x); }
  V or_zero(V v) const { return v; }
  void store(V v, float* x) const { hn::StoreU(v, D(), x); }
};

struct First {
  int64_t count;
  hn::MFromD<D> lanes = hn::FirstN(D(), static_cast<size_t>(count));
  V load(const float* x) const { return load_some(x, count); }
  V load(const float* x, V rest) const { return hn::IfThenElse(lanes, load(x), rest); }
  V or_zero(V v) const { return hn::IfThenElseZero(lanes, v); }
  void store(V v, float* x) const { hn::BlendedStore(v, lanes, D(), x); }
};

// Calls f(lanes, i) for the vectors of a row.
template <class F>
HWY_INLINE void vectors(int64_t count, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(All(), i);
  if (i < count) f(First{count - i}, i);
}

float largest_of(const float* x, int64_t count) {
  const D d;
  const V none = hn::Set(d, -kInfinity);
  V top = none;
  vectors(count, [&](auto lanes, int64_t i) { top = vec_max(top, lanes.load(x + i, none)); });
  HWY_ALIGN float cells[hn::MaxLanes(D())];
  hn::Store(top, d, cells);
  float largest = -kInfinity;
  for (size_t k = 0; k < hn::Lanes(d); ++k)
    largest = std::isnan(largest) || largest > cells[k] ? largest : cells[k];
  return largest;
}

float sum_of(const float* x, int64_t count) {
  V sums = hn::Zero(D());
  vectors(count, [&](auto lanes, int64_t i) { sums = hn::Add(sums, lanes.load(x + i)); });
  return hn::GetLane(hn::SumOfLanes(D(), sums));
}

void scale_row(float* x, int64_t count, float by) {
  const V scale = hn::Set(D(), by);
  vectors(count,
          [&](auto lanes, int64_t i) { lanes.store(hn::Mul(lanes.load(x + i), scale), x + i); });
}

float softmax_row(float* x, int64_t count) {
  const D d;
  const float largest = largest_of(x, count);
  if (largest == -kInfinity) {
    std::fill_n(x, count, 0.0f);
    return -kInfinity;
  }
  V sums = hn::Zero(d);
  const V shift = hn::Set(d, largest);
  vectors(count, [&](auto lanes, int64_t i) {
    const V e = lanes.or_zero(vec_exp(d, hn::Sub(lanes.load(x + i), shift)));
    sums = hn::Add(sums, e);
    lanes.store(e, x + i);
  });
  const float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  scale_row(x, count, 1.0f / sum);
  return largest + std::log(sum);
}

void probability_row(float* x, int64_t count, float lse) {
  const D d;
  if (lse == -kInfinity) {
    std::fill_n(x, count, 0.0f);
    return;
  }
  const V shift = hn::Set(d, lse);
  vectors(count, [&](auto lanes, int64_t i) {
    lanes.store(vec_exp(d, hn::Sub(lanes.load(x + i), shift)), x + i);
  });
  // A large maximum, as of a mask's lowest number, has rounded the logarithm of the sum away.
  if (std::abs(lse) < 256.0f) return;
  const float sum = sum_of(x, count);
  for (int64_t i = 0; i < count; ++i) x[i] /= sum;
}

void score_gradient_row(const float* p, float* dp, int64_t count, float delta) {
  const V shift = hn::Set(D(), delta);
  vectors(count, [&](auto lanes, int64_t i) {
    const V g = hn::Sub(lanes.load(dp + i), shift);
    lanes.store(hn::Mul(lanes.load(p + i), g), dp + i);
  });
}

void add_mask_row(float* x, const float* mask, int64_t count) {
  vectors(count, [&](auto lanes, int64_t i) {
    lanes.store(hn::Add(lanes.load(x + i), lanes.load(mask + i)), x + i);
  });
}

void keep_row(float* x, const bool* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = mask[i] ? x[i] : -kInfinity;
}

float dot_row(const float* a, const float* b, int64_t count) {
  V sums = hn::Zero(D());
  vectors(count, [&](auto lanes, int64_t i) {
    sums = hn::MulAdd(lanes.load(a + i), lanes.load(b + i), sums);
  });
  return hn::GetLane(hn::SumOfLanes(D(), sums));
}

void dropped_row(const float* x, float* y, int64_t count, uint64_t key, uint32_t counter,
                 uint64_t index, float ratio) {
  dropout_row(x, y, static_cast<size_t>(count), key, counter, index, ratio);
}

AttentionRows rows_of_target() {
  return {softmax_row, probability_row, score_gradient_row, add_mask_row,
          keep_row,    dot_row,         dropped_row};
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(rows_of_target);
const AttentionRows& attention_rows() {
  static const AttentionRows rows = HWY_DYNAMIC_DISPATCH(rows_of_target)();
  return rows;
}
}  // namespace ort::cpu
#endif
