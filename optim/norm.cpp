// The squares of gradients, summed in double: a norm, and whether all are finite.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/norm.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "optim/places-inl.h"
#include "optim/rules.h"

HWY_BEFORE_NAMESPACE();
namespace ort::optim::HWY_NAMESPACE {
namespace {

// Of vectors, in two sums that do not wait for each other.
class Sums {
 public:
  HWY_INLINE Sums() : low_(hn::Zero(d_)), high_(hn::Zero(d_)) {}
  HWY_INLINE void add(V<double> x) { low_ = hn::MulAdd(x, x, low_); }
  HWY_INLINE void add(V<float> x) {
    const hn::Half<D<float>> narrow;
    const V<double> low = hn::PromoteTo(d_, hn::LowerHalf(narrow, x));
    const V<double> high = hn::PromoteTo(d_, hn::UpperHalf(narrow, x));
    low_ = hn::MulAdd(low, low, low_);
    high_ = hn::MulAdd(high, high, high_);
  }
  HWY_INLINE double total() const { return hn::GetLane(hn::SumOfLanes(d_, hn::Add(low_, high_))); }

 private:
  D<double> d_;
  V<double> low_, high_;
};

template <class M>
double squares_of(const void* data, int64_t i, int64_t end) {
  using T = typename Memory<M>::T;
  const M* from = static_cast<const M*>(data);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D<T>()));
  Sums even, odd;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    even.add(Memory<M>::load(from + i));
    odd.add(Memory<M>::load(from + i + lanes));
  }
  for (; i < end; i += lanes) {
    M last[hn::MaxLanes(D<T>())] = {};
    std::memcpy(last, from + i, static_cast<size_t>(std::min(lanes, end - i)) * sizeof(M));
    even.add(Memory<M>::load(last));
  }
  return even.total() + odd.total();
}

double squares_range(const Gradient& g, int64_t begin, int64_t end) {
  if (g.dtype == DType::f32) return squares_of<float>(g.data, begin, end);
  if (g.dtype == DType::f64) return squares_of<double>(g.data, begin, end);
  if (g.dtype == DType::f16) return squares_of<Float16>(g.data, begin, end);
  return squares_of<Bfloat16>(g.data, begin, end);
}

}  // namespace
}  // namespace ort::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::optim {
namespace {

HWY_EXPORT(squares_range);

}  // namespace

GradientRange gradient_squares() {
  return HWY_DYNAMIC_DISPATCH(squares_range);
}

}  // namespace ort::optim
#endif
