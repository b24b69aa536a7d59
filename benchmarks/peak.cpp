// What one core's vector units reach: multiply-adds between registers alone. Called by roofline.py.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/peak.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ort::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve sums that do not wait for each other: latency times units of every core there is. They
// begin apart, or the compiler would make one of them.
double multiply_adds(int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto by = hn::Set(d, 0.5f), plus = hn::Set(d, 1.0f);
  const auto from = [&](int start) HWY_ATTR { return hn::Set(d, static_cast<float>(start)); };
  auto a = from(2), b = from(3), c = from(4), e = from(5), f = from(6), g = from(7);
  auto h = from(8), i = from(9), j = from(10), k = from(11), l = from(12), m = from(13);
  for (int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, by, plus), b = hn::MulAdd(b, by, plus), c = hn::MulAdd(c, by, plus);
    e = hn::MulAdd(e, by, plus), f = hn::MulAdd(f, by, plus), g = hn::MulAdd(g, by, plus);
    h = hn::MulAdd(h, by, plus), i = hn::MulAdd(i, by, plus), j = hn::MulAdd(j, by, plus);
    k = hn::MulAdd(k, by, plus), l = hn::MulAdd(l, by, plus), m = hn::MulAdd(m, by, plus);
  }
  const auto sum = hn::Add(
      hn::Add(hn::Add(a, b), hn::Add(c, e)),
      hn::Add(hn::Add(hn::Add(f, g), hn::Add(h, i)), hn::Add(hn::Add(j, k), hn::Add(l, m))));
  volatile float kept = hn::GetLane(sum);
  static_cast<void>(kept);
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace
}  // namespace ort::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort {
HWY_EXPORT(multiply_adds);

// Operations that `threads` did, two for a multiplication and its addition.
extern "C" __attribute__((visibility("default"))) double peak_operations(int threads,
                                                                         int64_t rounds) {
  double operations = 0;
#pragma omp parallel num_threads(threads) reduction(+ : operations)
  operations += HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds);
  return operations;
}
}  // namespace ort
#endif
