// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/images/sample_taps.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include <algorithm>

#include "hwy/highway.h"
#include "providers/cpu/images/sample_taps.h"
#include "providers/cpu/some_lanes-inl.h"

#ifndef ORT_CPU_SAMPLE_LOOPS
#define ORT_CPU_SAMPLE_LOOPS
namespace ort::cpu {
// What each target compiles.
template <class T>
struct SampleLoops {
  void (*find)(SampleTaps<T>&, const T*);
  void (*read)(const SampleTaps<T>&, const T*, T*);
  void (*scatter)(const SampleTaps<T>&, const T*, T*);
  void (*weigh)(const SampleTaps<T>&, const T*, const T*, T*);
  void (*turn)(const SampleTaps<T>&, const T*, T*);
};
}  // namespace ort::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

// One axis: positions of the grid's numbers, and these within X.
template <class T>
struct Axis {
  Tag<T> d;
  SampleRule::Padding padding;
  bool in_elements, align, volume;
  T size;
  typename SampleTaps<T>::Index stride;

  Axis(const SampleRule& rule, int axis)
      : padding(rule.padding),
        in_elements(rule.in_elements),
        align(rule.align_corners),
        volume(rule.axes == 3),
        size(static_cast<T>(rule.size[axis])),
        stride(static_cast<typename SampleTaps<T>::Index>(rule.stride(axis))) {}

  T scale() const { return in_elements ? T{1} : (align ? size - 1 : size) / 2; }
  HWY_INLINE Vec<T> position(Vec<T> grid) const {
    if (in_elements) return grid;
    const auto one = hn::Set(d, T{1});
    const auto at = hn::Mul(hn::Add(grid, one), hn::Set(d, scale()));
    return align ? at : hn::Sub(at, hn::Set(d, T{0.5}));
  }
  // Torch reads a volume at NaN as at its last element, and an image as at its first one.
  HWY_INLINE Vec<T> clipped(Vec<T> at, Vec<T>* turn) const {
    const auto zero = hn::Zero(d), last = hn::Set(d, size - 1);
    const auto lost = hn::IsNaN(at);
    at = hn::IfThenElse(lost, volume ? last : zero, at);
    *turn = hn::IfThenZeroElse(hn::Or(hn::Le(at, zero), hn::Ge(at, last)), *turn);
    return hn::Min(hn::Max(at, zero), last);
  }
  HWY_INLINE Vec<T> padded(Vec<T> at, Vec<T>* turn) const {
    if (padding == SampleRule::Padding::zeros) return at;
    if (padding == SampleRule::Padding::border) return clipped(at, turn);
    const auto low = hn::Set(d, align ? T{0} : T{-0.5});
    const T span = align ? size - 1 : size;
    if (span == 0) return clipped(hn::IfThenElse(hn::IsNaN(at), at, hn::Zero(d)), turn);
    *turn = hn::IfThenElse(hn::Lt(at, low), hn::Neg(*turn), *turn);
    const auto far = hn::Abs(hn::Sub(at, low)), reach = hn::Set(d, span);
    const auto flips = hn::Floor(hn::Div(far, reach));
    const auto rest = hn::NegMulAdd(flips, reach, far);
    const auto half = hn::Mul(flips, hn::Set(d, T{0.5}));
    const auto odd = hn::Ne(hn::Floor(half), half);
    *turn = hn::IfThenElse(odd, hn::Neg(*turn), *turn);
    return clipped(hn::Add(low, hn::IfThenElse(odd, hn::Sub(reach, rest), rest)), turn);
  }
};

// What a vector of positions reads along an axis.
template <class T>
struct Tap {
  hn::Vec<hn::RebindToSigned<Tag<T>>> offset;  // -1: outside
  Vec<T> weight, slope;
};

template <class T>
HWY_INLINE Tap<T> tap_of(const Axis<T>& axis, Vec<T> at, Vec<T> weight, Vec<T> slope) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  const auto inside = hn::And(hn::Ge(at, hn::Zero(d)), hn::Le(at, hn::Set(d, axis.size - 1)));
  auto offset = hn::ConvertTo(di, hn::IfThenElseZero(inside, at));
  if (axis.stride != 1) offset = hn::Mul(offset, hn::Set(di, axis.stride));
  offset = hn::IfThenElse(hn::RebindMask(di, inside), offset, hn::Set(di, -1));
  if (!axis.volume) return {offset, weight, slope};
  return {offset, hn::IfThenElseZero(inside, weight), hn::IfThenElseZero(inside, slope)};
}

// Keys' weights with a = -0.75 and their slopes, `far` from the position.
template <class T>
HWY_INLINE void keys(Vec<T> far, bool near, Vec<T>* weight, Vec<T>* slope) {
  const Tag<T> d;
  constexpr T a = T{-0.75};
  const auto set = [&](T x) HWY_ATTR { return hn::Set(d, x); };
  if (near) {
    const auto inner = hn::MulSub(set(a + 2), far, set(a + 3));
    *weight = hn::MulAdd(hn::Mul(inner, far), far, set(1));
    *slope = hn::Mul(hn::MulSub(set(3 * (a + 2)), far, set(2 * (a + 3))), far);
  } else {
    const auto inner = hn::MulAdd(hn::MulSub(set(a), far, set(5 * a)), far, set(8 * a));
    *weight = hn::MulSub(inner, far, set(4 * a));
    *slope = hn::MulAdd(hn::MulSub(set(3 * a), far, set(10 * a)), far, set(8 * a));
  }
}

// One tap is the nearest element, two are linear, four are cubic.
template <int kAlong, class T>
HWY_INLINE void take(const Axis<T>& axis, Vec<T> grid, Tap<T>* taps) {
  const Tag<T> d;
  auto at = axis.position(grid), turn = hn::Set(d, axis.scale());
  const auto one = hn::Set(d, T{1});
  if constexpr (kAlong < 4) at = axis.padded(at, &turn);
  if constexpr (kAlong == 1) {
    taps[0] = tap_of(axis, hn::Round(at), one, hn::Zero(d));
    return;
  }
  const auto low = hn::Floor(at), part = hn::Sub(at, low);
  if constexpr (kAlong == 2) {
    taps[0] = tap_of(axis, low, hn::Sub(one, part), hn::Neg(turn));
    taps[1] = tap_of(axis, hn::Add(low, one), part, turn);
    return;
  }
  for (int k = 0; k < kAlong; ++k) {
    const auto step = hn::Set(d, static_cast<T>(k - 1)), far = hn::Sub(part, step);
    auto weight = one, slope = one, ignored = one;
    keys<T>(hn::Abs(far), k == 1 || k == 2, &weight, &slope);
    slope = hn::Mul(slope, turn);
    slope = hn::IfThenElse(hn::Lt(far, hn::Zero(d)), hn::Neg(slope), slope);
    taps[k] = tap_of(axis, axis.padded(hn::Add(low, step), &ignored), weight, slope);
  }
}

// The numbers of a vector of positions, by axis of X: x, its last one, is named first. Beyond
// `count` there are zeros.
template <int kAxes, class T>
HWY_INLINE void load(const T* grid, int64_t count, Vec<T>* by_axis) {
  const Tag<T> d;
  HWY_ALIGN T some[kAxes * hn::MaxLanes(d)];
  if (count < static_cast<int64_t>(hn::Lanes(d))) {
    std::fill(std::copy_n(grid, count * kAxes, some), some + kAxes * hn::Lanes(d), T{});
    grid = some;
  }
  if constexpr (kAxes == 1) by_axis[0] = hn::LoadU(d, grid);
  if constexpr (kAxes == 2) hn::LoadInterleaved2(d, grid, by_axis[1], by_axis[0]);
  if constexpr (kAxes == 3) hn::LoadInterleaved3(d, grid, by_axis[2], by_axis[1], by_axis[0]);
}

template <int kAxes, class T>
HWY_INLINE void store(const Vec<T>* by_axis, int64_t count, T* grid) {
  const Tag<T> d;
  HWY_ALIGN T some[kAxes * hn::MaxLanes(d)];
  const bool whole = count >= static_cast<int64_t>(hn::Lanes(d));
  T* to = whole ? grid : some;
  if constexpr (kAxes == 1) hn::StoreU(by_axis[0], d, to);
  if constexpr (kAxes == 2) hn::StoreInterleaved2(by_axis[1], by_axis[0], d, to);
  if constexpr (kAxes == 3) hn::StoreInterleaved3(by_axis[2], by_axis[1], by_axis[0], d, to);
  if (!whole) std::copy_n(some, count * kAxes, grid);
}

constexpr int power(int base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

template <class T, class F>
HWY_INLINE void vectors(const SampleTaps<T>& c, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  for (int64_t p = 0; p < c.count; p += lanes) f(p);
}

template <int kAxes, int kAlong, class T>
HWY_INLINE void find_taps(SampleTaps<T>& c, const T* grid) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  const Axis<T> axes[3] = {{c.rule, 0}, {c.rule, kAxes > 1 ? 1 : 0}, {c.rule, kAxes > 2 ? 2 : 0}};
  vectors(c, [&](int64_t p) HWY_ATTR {
    Vec<T> numbers[kAxes];
    load<kAxes>(grid + p * kAxes, c.count - p, numbers);
    Tap<T> taps[kAxes][kAlong];
    for (int axis = 0; axis < kAxes; ++axis) take<kAlong>(axes[axis], numbers[axis], taps[axis]);
    if (!c.slopes.empty())
      for (int k = 0; k < kAxes * kAlong; ++k) {
        const Tap<T>& tap = taps[k / kAlong][k % kAlong];
        hn::StoreU(tap.weight, d, c.axis_weights.data() + k * c.room + p);
        hn::StoreU(tap.slope, d, c.slopes.data() + k * c.room + p);
      }
    for (int k = 0; k < power(kAlong, kAxes); ++k) {
      const Tap<T>& last = taps[kAxes - 1][k % kAlong];
      auto offset = last.offset, signs = offset;
      auto weight = last.weight;
      for (int axis = kAxes - 1, rest = k / kAlong; axis-- > 0; rest /= kAlong) {
        const Tap<T>& tap = taps[axis][rest % kAlong];
        offset = hn::Add(offset, tap.offset);
        signs = hn::Or(signs, tap.offset);
        weight = hn::Mul(weight, tap.weight);
      }
      offset = hn::IfThenElse(hn::Lt(signs, hn::Zero(di)), hn::Set(di, -1), offset);
      hn::StoreU(offset, di, c.offsets.data() + k * c.room + p);
      hn::StoreU(weight, d, c.weights.data() + k * c.room + p);
    }
  });
}

// Calls f<axes, taps along each>().
template <class F>
HWY_INLINE void by_kind(const SampleRule& rule, F f) {
  const auto of = [&]<int kAxes>() HWY_ATTR {
    if (rule.along() == 1) return f.template operator()<kAxes, 1>();
    if (rule.along() == 2) return f.template operator()<kAxes, 2>();
    f.template operator()<kAxes, 4>();
  };
  if (rule.axes == 1) return of.template operator()<1>();
  if (rule.axes == 2) return of.template operator()<2>();
  of.template operator()<3>();
}

template <class T>
void find(SampleTaps<T>& c, const T* grid) {
  by_kind(c.rule, [&]<int kAxes, int kAlong>() HWY_ATTR { find_taps<kAxes, kAlong>(c, grid); });
}

template <class T>
HWY_INLINE Vec<T> gathered(const SampleTaps<T>& c, const T* plane, int k, int64_t p) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  const auto offset = hn::LoadU(di, c.offsets.data() + k * c.room + p);
  const auto there = hn::RebindMask(d, hn::Gt(offset, hn::Set(di, -1)));
  return hn::IfThenElseZero(there, hn::GatherIndex(d, plane, hn::Max(offset, hn::Zero(di))));
}

template <class T>
HWY_INLINE void store_some(Vec<T> values, T* to, int64_t count) {
  const Tag<T> d;
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(values, d, lanes);
  std::copy_n(lanes, count, to);
}

// By so many taps: 0 stands for any number.
template <int kTaps, class T>
HWY_INLINE void read_taps(const SampleTaps<T>& c, const T* plane, T* y) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int taps = kTaps > 0 ? kTaps : c.taps;
  vectors(c, [&](int64_t p) HWY_ATTR {
    const T* weights = c.weights.data() + p;
    auto sum = gathered(c, plane, 0, p);
    if (taps > 1) sum = hn::Mul(hn::LoadU(d, weights), sum);
    for (int k = 1; k < taps; ++k)
      sum = hn::MulAdd(hn::LoadU(d, weights + k * c.room), gathered(c, plane, k, p), sum);
    if (p + lanes <= c.count)
      hn::StoreU(sum, d, y + p);
    else
      store_some(sum, y + p, c.count - p);
  });
}

template <class T>
void read(const SampleTaps<T>& c, const T* plane, T* y) {
  if (c.rule.mode == SampleRule::Mode::nearest)
    read_taps<1>(c, plane, y);
  else if (c.taps == 4)
    read_taps<4>(c, plane, y);
  else if (c.taps == 8)
    read_taps<8>(c, plane, y);
  else
    read_taps<0>(c, plane, y);
}

template <class T>
void scatter(const SampleTaps<T>& c, const T* dy, T* plane) {
  for (int k = 0; k < c.taps; ++k) {
    const auto* at = c.offsets.data() + k * c.room;
    const T* weight = c.weights.data() + k * c.room;
    for (int64_t p = 0; p < c.count; ++p)
      if (at[p] >= 0) plane[at[p]] += weight[p] * dy[p];
  }
}

template <class T>
void weigh(const SampleTaps<T>& c, const T* plane, const T* dy, T* by_tap) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int k = 0; k < c.taps; ++k)
    vectors(c, [&](int64_t p) HWY_ATTR {
      const auto by = p + lanes <= c.count ? hn::LoadU(d, dy + p) : load_some(dy + p, c.count - p);
      T* sum = by_tap + k * c.room + p;
      hn::StoreU(hn::MulAdd(by, gathered(c, plane, k, p), hn::LoadU(d, sum)), d, sum);
    });
}

template <int kAxes, int kAlong, class T>
HWY_INLINE void turn_taps(const SampleTaps<T>& c, const T* by_tap, T* dgrid) {
  const Tag<T> d;
  vectors(c, [&](int64_t p) HWY_ATTR {
    Vec<T> sums[kAxes];
    for (int axis = 0; axis < kAxes; ++axis) sums[axis] = hn::Zero(d);
    for (int k = 0; k < power(kAlong, kAxes); ++k) {
      const auto sum = hn::LoadU(d, by_tap + k * c.room + p);
      for (int axis = 0; axis < kAxes; ++axis) {
        auto slope = sum;
        for (int other = kAxes, rest = k; other-- > 0; rest /= kAlong) {
          const T* by = (other == axis ? c.slopes : c.axis_weights).data();
          slope = hn::Mul(slope, hn::LoadU(d, by + (other * kAlong + rest % kAlong) * c.room + p));
        }
        sums[axis] = hn::Add(sums[axis], slope);
      }
    }
    store<kAxes>(sums, c.count - p, dgrid + p * kAxes);
  });
}

template <class T>
void turn(const SampleTaps<T>& c, const T* by_tap, T* dgrid) {
  by_kind(c.rule,
          [&]<int kAxes, int kAlong>() HWY_ATTR { turn_taps<kAxes, kAlong>(c, by_tap, dgrid); });
}

template <class T>
SampleLoops<T> loops() {
  return {find<T>, read<T>, scatter<T>, weigh<T>, turn<T>};
}
SampleLoops<float> loops_of_floats() {
  return loops<float>();
}
SampleLoops<double> loops_of_doubles() {
  return loops<double>();
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(loops_of_floats);
HWY_EXPORT(loops_of_doubles);

namespace {

template <class T>
const SampleLoops<T>& of() {
  static const SampleLoops<T> found = [] {
    if constexpr (sizeof(T) == 4)
      return HWY_DYNAMIC_DISPATCH(loops_of_floats)();
    else
      return HWY_DYNAMIC_DISPATCH(loops_of_doubles)();
  }();
  return found;
}

}  // namespace

template <class T>
SampleTaps<T>::SampleTaps(const SampleRule& rule, bool with_slopes)
    : rule(rule), taps(rule.taps()) {
  constexpr int64_t kInCache = 4096;  // taps of a chunk
  room = std::clamp<int64_t>(kInCache / taps, 64, 512);
  offsets.resize(static_cast<size_t>(taps * room));
  weights.resize(offsets.size());
  if (!with_slopes) return;
  axis_weights.resize(static_cast<size_t>(rule.axes * rule.along() * room));
  slopes.resize(axis_weights.size());
}

template <class T>
void SampleTaps<T>::find(const T* grid, int64_t positions) {
  count = positions;
  of<T>().find(*this, grid);
}
template <class T>
void SampleTaps<T>::read(const T* plane, T* y) const {
  of<T>().read(*this, plane, y);
}
template <class T>
void SampleTaps<T>::scatter(const T* dy, T* plane) const {
  of<T>().scatter(*this, dy, plane);
}
template <class T>
void SampleTaps<T>::weigh(const T* plane, const T* dy, T* by_tap) const {
  of<T>().weigh(*this, plane, dy, by_tap);
}
template <class T>
void SampleTaps<T>::turn(const T* by_tap, T* dgrid) const {
  of<T>().turn(*this, by_tap, dgrid);
}

template struct SampleTaps<float>;
template struct SampleTaps<double>;

}  // namespace ort::cpu
#endif
