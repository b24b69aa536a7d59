// Softmax rows and their gradients with Highway, once per vector target.
#include "providers/cpu/attention_rows.h"

#include <cmath>

#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/attention_rows.cpp"
#include "hwy/foreach_target.h"
// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/philox-inl.h"
#include "providers/cpu/vec_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE float scalar_exp(float x) {
  const D d;
  return hn::GetLane(vec_exp(d, hn::Set(d, x)));
}

float softmax_row(float* x, int64_t count) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V top = hn::Set(d, -kInfinity);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) top = vec_max(top, hn::LoadU(d, x + i));
  HWY_ALIGN float cells[hn::MaxLanes(D())];
  hn::Store(top, d, cells);
  float largest = -kInfinity;
  const auto see = [&](float v) { largest = std::isnan(largest) || largest > v ? largest : v; };
  for (int64_t k = 0; k < lanes; ++k) see(cells[k]);
  for (; i < count; ++i) see(x[i]);
  if (largest == -kInfinity) {
    for (int64_t k = 0; k < count; ++k) x[k] = 0.0f;
    return -kInfinity;
  }
  V sums = hn::Zero(d);
  const V shift = hn::Set(d, largest);
  for (i = 0; i + lanes <= count; i += lanes) {
    const V e = vec_exp(d, hn::Sub(hn::LoadU(d, x + i), shift));
    sums = hn::Add(sums, e);
    hn::StoreU(e, d, x + i);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += x[i] = scalar_exp(x[i] - largest);
  const float inverse = 1.0f / sum;
  const V scale = hn::Set(d, inverse);
  for (i = 0; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), scale), d, x + i);
  for (; i < count; ++i) x[i] *= inverse;
  return largest + std::log(sum);
}

void probability_row(float* x, int64_t count, float lse) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool nothing = lse == -kInfinity;
  const V shift = hn::Set(d, lse);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V p = vec_exp(d, hn::Sub(hn::LoadU(d, x + i), shift));
    hn::StoreU(nothing ? hn::Zero(d) : p, d, x + i);
  }
  for (; i < count; ++i) x[i] = nothing ? 0.0f : scalar_exp(x[i] - lse);
  // A large maximum, as of a mask's lowest number, has rounded the logarithm of the sum away.
  if (nothing || std::abs(lse) < 256.0f) return;
  float sum = 0;
  for (i = 0; i < count; ++i) sum += x[i];
  for (i = 0; i < count; ++i) x[i] /= sum;
}

void score_gradient_row(const float* p, float* dp, int64_t count, float delta) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V shift = hn::Set(d, delta);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V g = hn::Sub(hn::LoadU(d, dp + i), shift);
    hn::StoreU(hn::Mul(hn::LoadU(d, p + i), g), d, dp + i);
  }
  for (; i < count; ++i) dp[i] = p[i] * (dp[i] - delta);
}

void add_mask_row(float* x, const float* mask, int64_t count) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, mask + i)), d, x + i);
  for (; i < count; ++i) x[i] += mask[i];
}

void keep_row(float* x, const bool* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = mask[i] ? x[i] : -kInfinity;
}

float dot_row(const float* a, const float* b, int64_t count) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    sums = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
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
