// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/signal/fft.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "hwy/highway.h"
#include "providers/cpu/signal/fft.h"

#ifndef ORT_CPU_FFT_LOOPS
#define ORT_CPU_FFT_LOOPS
namespace ort::cpu {
// What each target compiles.
template <class T>
struct FftLoops {
  void (*pass)(const FftPass<T>&, const T*, const T*, T*, T*, int64_t);
  void (*times)(const T*, const T*, int64_t, int64_t, T*, T*);
  void (*split)(const T*, int64_t, T*, T*);
  void (*join)(const T*, const T*, int64_t, T, T, T*);
};
constexpr int kMostRadix = 13;
}  // namespace ort::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct Complex {
  hn::Vec<D> re, im;
};

template <class D>
HWY_INLINE Complex<D> add(Complex<D> a, Complex<D> b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class D>
HWY_INLINE Complex<D> sub(Complex<D> a, Complex<D> b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
template <class D>
HWY_INLINE Complex<D> mul(Complex<D> a, Complex<D> b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)),
          hn::MulAdd(a.re, b.im, hn::Mul(a.im, b.re))};
}
// a + i b and a - i b.
template <class D>
HWY_INLINE void turned(Complex<D> a, Complex<D> b, Complex<D>* plus, Complex<D>* minus) {
  *plus = {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
  *minus = {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}

// The transform of kRadix numbers in place. Any: a loop over the roots, of an odd radix.
template <int kRadix, class T>
struct Butterfly {
  template <class D>
  static HWY_INLINE void run(D d, const FftPass<T>& p, Complex<D>* x) {
    const int radix = p.radix, half = radix / 2;
    Complex<D> even[kMostRadix / 2 + 1], odd[kMostRadix / 2 + 1], sum = x[0];
    for (int j = 1; j <= half; ++j) {
      even[j] = add(x[j], x[radix - j]);
      odd[j] = sub(x[j], x[radix - j]);
      sum = add(sum, even[j]);
    }
    const Complex<D> first = x[0];
    x[0] = sum;
    for (int k = 1; k <= half; ++k) {
      Complex<D> a = first, b = {hn::Zero(d), hn::Zero(d)};
      for (int j = 1; j <= half; ++j) {
        const auto at = static_cast<size_t>(j * k % radix);
        const auto c = hn::Set(d, p.root_re[at]), s = hn::Set(d, p.root_im[at]);
        a = {hn::MulAdd(c, even[j].re, a.re), hn::MulAdd(c, even[j].im, a.im)};
        b = {hn::MulAdd(s, odd[j].re, b.re), hn::MulAdd(s, odd[j].im, b.im)};
      }
      turned(a, b, &x[k], &x[radix - k]);
    }
  }
};
template <class T>
struct Butterfly<2, T> {
  template <class D>
  static HWY_INLINE void run(D, const FftPass<T>&, Complex<D>* x) {
    const Complex<D> a = x[0];
    x[0] = add(a, x[1]);
    x[1] = sub(a, x[1]);
  }
};
template <class T>
struct Butterfly<4, T> {
  template <class D>
  static HWY_INLINE void run(D, const FftPass<T>&, Complex<D>* x) {
    const auto a = add(x[0], x[2]), b = sub(x[0], x[2]), c = add(x[1], x[3]), e = sub(x[1], x[3]);
    x[0] = add(a, c);
    x[2] = sub(a, c);
    turned(b, e, &x[3], &x[1]);
  }
};

// Loads the parts of one place, turns them and hands them on.
template <int kRadix, class D, class T>
struct Place {
  D d;
  const FftPass<T>& p;
  const T *re, *im;
  int radix;

  HWY_INLINE void load(int64_t at, int64_t step, Complex<D>* x) const {
    for (int j = 0; j < radix; ++j)
      x[j] = {hn::LoadU(d, re + at + j * step), hn::LoadU(d, im + at + j * step)};
    Butterfly<kRadix, T>::run(d, p, x);
  }
};

template <int kRadix>
constexpr int kRoom = kRadix > 0 ? kRadix : kMostRadix;

// Numbers of a stride, a vector at a time: one turn serves them all.
template <int kRadix, class D, class T>
HWY_INLINE int64_t along_stride(D d, const FftPass<T>& p, const T* re, const T* im, T* to_re,
                                T* to_im, int64_t stride, int64_t place, int64_t q) {
  const int radix = kRadix > 0 ? kRadix : p.radix;
  const Place<kRadix, D, T> from{d, p, re, im, radix};
  Complex<D> turn[kRoom<kRadix>], x[kRoom<kRadix>];
  for (int k = 1; k < radix; ++k) {
    const auto at = static_cast<size_t>((k - 1) * p.rest + place);
    turn[k] = {hn::Set(d, p.turn_re[at]), hn::Set(d, p.turn_im[at])};
  }
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; q + lanes <= stride; q += lanes) {
    from.load(place * stride + q, p.rest * stride, x);
    const int64_t to = place * radix * stride + q;
    for (int k = 0; k < radix; ++k) {
      if (k > 0) x[k] = mul(x[k], turn[k]);
      hn::StoreU(x[k].re, d, to_re + to + k * stride);
      hn::StoreU(x[k].im, d, to_im + to + k * stride);
    }
  }
  return q;
}

// Where the stride is 1: places, a vector at a time, whose results interleave.
template <int kRadix, class D, class T>
HWY_INLINE int64_t along_places(D d, const FftPass<T>& p, const T* re, const T* im, T* to_re,
                                T* to_im, int64_t place) {
  const int radix = kRadix > 0 ? kRadix : p.radix;
  const Place<kRadix, D, T> from{d, p, re, im, radix};
  Complex<D> x[kRoom<kRadix>];
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; place + lanes <= p.rest; place += lanes) {
    from.load(place, p.rest, x);
    for (int k = 1; k < radix; ++k) {
      const int64_t at = (k - 1) * p.rest + place;
      x[k] = mul(x[k], {hn::LoadU(d, p.turn_re.data() + at), hn::LoadU(d, p.turn_im.data() + at)});
    }
    T *r = to_re + place * radix, *i = to_im + place * radix;
    if constexpr (kRadix == 2) {
      hn::StoreInterleaved2(x[0].re, x[1].re, d, r);
      hn::StoreInterleaved2(x[0].im, x[1].im, d, i);
    } else if constexpr (kRadix == 4) {
      hn::StoreInterleaved4(x[0].re, x[1].re, x[2].re, x[3].re, d, r);
      hn::StoreInterleaved4(x[0].im, x[1].im, x[2].im, x[3].im, d, i);
    } else {
      HWY_ALIGN T lanes_of[hn::MaxLanes(d)];
      for (int k = 0; k < 2 * radix; ++k) {
        hn::Store(k < radix ? x[k].re : x[k - radix].im, d, lanes_of);
        T* to = (k < radix ? r : i) + k % radix;
        for (int64_t l = 0; l < lanes; ++l) to[l * radix] = lanes_of[l];
      }
    }
  }
  return place;
}

template <int kRadix, class T>
HWY_INLINE void pass_of(const FftPass<T>& p, const T* re, const T* im, T* to_re, T* to_im,
                        int64_t stride) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 4> few;
  const hn::CappedTag<T, 1> one;
  if (stride == 1) {
    int64_t at = along_places<kRadix>(d, p, re, im, to_re, to_im, 0);
    at = along_places<kRadix>(few, p, re, im, to_re, to_im, at);
    along_places<kRadix>(one, p, re, im, to_re, to_im, at);
    return;
  }
  for (int64_t place = 0; place < p.rest; ++place) {
    int64_t q = along_stride<kRadix>(d, p, re, im, to_re, to_im, stride, place, 0);
    if (q < stride) q = along_stride<kRadix>(few, p, re, im, to_re, to_im, stride, place, q);
    if (q < stride) along_stride<kRadix>(one, p, re, im, to_re, to_im, stride, place, q);
  }
}

template <class T>
void pass(const FftPass<T>& p, const T* re, const T* im, T* to_re, T* to_im, int64_t lanes) {
  const int64_t stride = p.stride * lanes;
  if (p.radix == 2) return pass_of<2>(p, re, im, to_re, to_im, stride);
  if (p.radix == 4) return pass_of<4>(p, re, im, to_re, to_im, stride);
  pass_of<0>(p, re, im, to_re, to_im, stride);
}

// re and im [count, lanes] times by [count].
template <class T>
void times(const T* by_re, const T* by_im, int64_t count, int64_t lanes, T* re, T* im) {
  const auto each = [&](auto d, int64_t from, int64_t end, auto by) HWY_ATTR {
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    for (; from + step <= end; from += step) {
      const Complex<decltype(d)> x{hn::LoadU(d, re + from), hn::LoadU(d, im + from)};
      const auto y = mul(x, by(d, from));
      hn::StoreU(y.re, d, re + from);
      hn::StoreU(y.im, d, im + from);
    }
    return from;
  };
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  if (lanes == 1) {
    const auto along = [&](auto tag, int64_t at) HWY_ATTR {
      return Complex<decltype(tag)>{hn::LoadU(tag, by_re + at), hn::LoadU(tag, by_im + at)};
    };
    each(one, each(d, 0, count, along), count, along);
    return;
  }
  for (int64_t k = 0; k < count; ++k) {
    const auto same = [&](auto tag, int64_t) HWY_ATTR {
      return Complex<decltype(tag)>{hn::Set(tag, by_re[k]), hn::Set(tag, by_im[k])};
    };
    const int64_t end = (k + 1) * lanes;
    each(one, each(d, k * lanes, end, same), end, same);
  }
}

template <class T>
void split(const T* pairs, int64_t count, T* re, T* im) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    auto a = hn::Zero(d), b = a;
    hn::LoadInterleaved2(d, pairs + 2 * k, a, b);
    hn::StoreU(a, d, re + k);
    hn::StoreU(b, d, im + k);
  }
  for (; k < count; ++k) re[k] = pairs[2 * k], im[k] = pairs[2 * k + 1];
}

template <class T>
void join(const T* re, const T* im, int64_t count, T by_re, T by_im, T* pairs) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes)
    hn::StoreInterleaved2(hn::Mul(hn::LoadU(d, re + k), hn::Set(d, by_re)),
                          hn::Mul(hn::LoadU(d, im + k), hn::Set(d, by_im)), d, pairs + 2 * k);
  for (; k < count; ++k) pairs[2 * k] = re[k] * by_re, pairs[2 * k + 1] = im[k] * by_im;
}

FftLoops<float> loops_of_floats() {
  return {pass<float>, times<float>, split<float>, join<float>};
}
FftLoops<double> loops_of_doubles() {
  return {pass<double>, times<double>, split<double>, join<double>};
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
const FftLoops<T>& loops() {
  static const FftLoops<T> found = [] {
    if constexpr (sizeof(T) == 4)
      return HWY_DYNAMIC_DISPATCH(loops_of_floats)();
    else
      return HWY_DYNAMIC_DISPATCH(loops_of_doubles)();
  }();
  return found;
}

// exp(-2 pi i at / length)
template <class T>
void put_root(int64_t at, int64_t length, std::vector<T>& re, std::vector<T>& im) {
  const double angle =
      2 * std::numbers::pi * static_cast<double>(at % length) / static_cast<double>(length);
  re.push_back(static_cast<T>(std::cos(angle)));
  im.push_back(static_cast<T>(-std::sin(angle)));
}

// Fours first, whose first pass interleaves in vectors; empty where a factor is large.
std::vector<int> factors_of(int64_t length) {
  std::vector<int> factors;
  for (int factor : {4, 2, 3, 5, 7, 11, 13})
    for (; length % factor == 0; length /= factor) factors.push_back(factor);
  return length == 1 ? factors : std::vector<int>{};
}

template <class T>
FftPass<T> pass_of(int radix, int64_t rest, int64_t stride) {
  FftPass<T> pass{radix, rest, stride, {}, {}, {}, {}};
  for (int k = 1; k < radix; ++k)
    for (int64_t p = 0; p < rest; ++p) put_root(p * k, radix * rest, pass.turn_re, pass.turn_im);
  for (int k = 0; k < radix; ++k) put_root(k, int64_t{radix}, pass.root_re, pass.root_im);
  return pass;
}

}  // namespace

template <class T>
Fft<T>::Fft(int64_t length) : length_(length) {
  const std::vector<int> factors = factors_of(length);
  int64_t rest = length, stride = 1;
  for (const int radix : factors) {
    rest /= radix;
    passes_.push_back(pass_of<T>(radix, rest, stride));
    stride *= radix;
  }
  if (!factors.empty() || length == 1) return;
  int64_t room = 1;
  while (room < 2 * length - 1) room *= 2;
  inner_ = std::make_unique<Fft<T>>(room);
  std::vector<T> spare(static_cast<size_t>(inner_->spare(1)));
  filter_re_.assign(static_cast<size_t>(room), T{});
  filter_im_.assign(static_cast<size_t>(room), T{});
  int64_t square = 0;  // k k modulo 2 length
  for (int64_t k = 0; k < length; ++k) {
    put_root(square, 2 * length, chirp_re_, chirp_im_);
    square = (square + 2 * k + 1) % (2 * length);
    for (const int64_t at : {k, (room - k) % room}) {
      filter_re_[static_cast<size_t>(at)] = chirp_re_.back() / static_cast<T>(room);
      filter_im_[static_cast<size_t>(at)] = -chirp_im_.back() / static_cast<T>(room);
    }
  }
  inner_->run(filter_re_.data(), filter_im_.data(), spare.data(), 1);
}

template <class T>
int64_t Fft<T>::spare(int64_t lanes) const {
  if (!inner_) return 2 * length_ * lanes;
  return 2 * inner_->length_ * lanes + inner_->spare(lanes);
}

template <class T>
int64_t Fft<T>::work() const {
  if (inner_) return 2 * inner_->work() + inner_->length_;
  int64_t all = 0;
  for (const FftPass<T>& pass : passes_) all += length_ * (pass.radix + 4) / 8;
  return all;
}

template <class T>
void Fft<T>::run(T* re, T* im, T* spare, int64_t lanes) const {
  if (inner_) return chirp(re, im, spare, lanes);
  T *from_re = re, *from_im = im, *to_re = spare, *to_im = spare + length_ * lanes;
  for (const FftPass<T>& pass : passes_) {
    loops<T>().pass(pass, from_re, from_im, to_re, to_im, lanes);
    std::swap(from_re, to_re);
    std::swap(from_im, to_im);
  }
  if (from_re == re) return;
  std::copy_n(from_re, length_ * lanes, re);
  std::copy_n(from_im, length_ * lanes, im);
}

template <class T>
void Fft<T>::chirp(T* re, T* im, T* spare, int64_t lanes) const {
  const int64_t room = inner_->length_, all = room * lanes, own = length_ * lanes;
  T *wide_re = spare, *wide_im = spare + all, *rest = spare + 2 * all;
  loops<T>().times(chirp_re_.data(), chirp_im_.data(), length_, lanes, re, im);
  std::fill(std::copy_n(re, own, wide_re), wide_re + all, T{});
  std::fill(std::copy_n(im, own, wide_im), wide_im + all, T{});
  inner_->run(wide_re, wide_im, rest, lanes);
  loops<T>().times(filter_re_.data(), filter_im_.data(), room, lanes, wide_re, wide_im);
  inner_->run(wide_im, wide_re, rest, lanes);  // parts exchanged: the transform back
  std::copy_n(wide_re, own, re);
  std::copy_n(wide_im, own, im);
  loops<T>().times(chirp_re_.data(), chirp_im_.data(), length_, lanes, re, im);
}

template <class T>
void split_pairs(const T* pairs, int64_t count, T* re, T* im) {
  loops<T>().split(pairs, count, re, im);
}
template <class T>
void join_pairs(const T* re, const T* im, int64_t count, T by_re, T by_im, T* pairs) {
  loops<T>().join(re, im, count, by_re, by_im, pairs);
}

template class Fft<float>;
template class Fft<double>;
template void split_pairs(const float*, int64_t, float*, float*);
template void split_pairs(const double*, int64_t, double*, double*);
template void join_pairs(const float*, const float*, int64_t, float, float, float*);
template void join_pairs(const double*, const double*, int64_t, double, double, double*);

}  // namespace ort::cpu
#endif
