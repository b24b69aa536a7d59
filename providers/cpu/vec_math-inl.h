// Vector mathematics on float32 within about 2 ulp, right for NaN and infinities; once per Highway
// target. Included by tile_ops.cpp and the attention and loss kernels.
#if defined(ORT_CPU_VEC_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ORT_CPU_VEC_MATH_INL_H_
#undef ORT_CPU_VEC_MATH_INL_H_
#else
#define ORT_CPU_VEC_MATH_INL_H_
#endif

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Coefficients from the highest power down.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V horner(D d, V x, std::initializer_list<float> coefficients) {
  auto c = coefficients.begin();
  V y = hn::Set(d, *c);
  while (++c != coefficients.end()) y = hn::MulAdd(y, x, hn::Set(d, *c));
  return y;
}

// 2^n for integers n in the normal range.
template <class D, class DI, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, DI di, hn::Vec<DI> n) {
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// exp(x) = 2^half 2^rest (1 + near). In two powers, so that both infinity and denormals come out.
template <class V, class I>
struct ExpParts {
  V near;
  I half, rest;
};

template <class D, class DI = hn::RebindToSigned<D>, class V = hn::Vec<D>>
HWY_INLINE ExpParts<V, hn::Vec<DI>> exp_parts(D d, V x) {
  const V clamped = hn::Max(hn::Min(x, hn::Set(d, 89.0f)), hn::Set(d, -104.0f));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const V p = horner(d, r,
                     {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                      1.6666665459e-1f, 5.0000001201e-1f});
  const auto whole = hn::ConvertTo(DI(), n);
  const auto half = hn::ShiftRight<1>(whole);
  return {hn::MulAdd(p, hn::Mul(r, r), r), half, hn::Sub(whole, half)};
}

// exp for arguments that are known to be at most about 88 (softmax: at most 0); NaN gives NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto [near, half, rest] = exp_parts(d, x);
  const V y = hn::Mul(hn::Add(near, hn::Set(d, 1.0f)), power_of_two(d, di, half));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(y, power_of_two(d, di, rest)));
}

// x as 2^e (1 + m) with 1 + m in [sqrt(1/2), sqrt(2)): e, and log(1 + m) as m + rest.
template <class V>
struct LogParts {
  V e, m, rest;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE LogParts<V> log_parts(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const V normal = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 33554432.0f)), x);
  const auto bits = hn::BitCast(di, normal);
  const auto shifted = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  V e = hn::ConvertTo(d, hn::ShiftRight<23>(shifted));
  e = hn::Sub(e, hn::IfThenElseZero(tiny, hn::Set(d, 25.0f)));
  const auto mantissa = hn::Add(hn::And(shifted, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  const V m = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));
  const V z = hn::Mul(m, m);
  const V y = horner(
      d, m,
      {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
  return {e, m, hn::Mul(hn::Mul(m, z), y)};
}

// A logarithm's value y where x is zero, negative, infinite or NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_at_ends(D d, V x, V y) {
  const V zero = hn::Zero(d);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Set(d, -kInfinity), y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  // Infinity and NaN are their own logarithms.
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, kInfinity)), y, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log(D d, V x) {
  const auto [e, m, rest] = log_parts(d, x);
  V y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), rest);
  y = hn::NegMulAdd(hn::Mul(m, m), hn::Set(d, 0.5f), y);
  y = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(m, y));
  return log_at_ends(d, x, y);
}

// Exact at powers of two.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log2(D d, V x) {
  const auto [e, m, rest] = log_parts(d, x);
  const V natural = hn::Add(m, hn::NegMulAdd(hn::Mul(m, m), hn::Set(d, 0.5f), rest));
  return log_at_ends(d, x, hn::MulAdd(natural, hn::Set(d, 1.44269504088896341f), e));
}

// log(u) with u = 1 + x rounded, and what the rounding lost.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log1p(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(x, one);
  const V lost = hn::Div(hn::Sub(x, hn::Sub(u, one)), u);
  const V whole = vec_log(d, u);
  const auto inner = hn::Lt(hn::Abs(whole), hn::Set(d, kInfinity));  // false for NaN too
  const V y = hn::IfThenElse(inner, hn::Add(whole, lost), whole);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
}

// exp(x) - 1 from exp's parts.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_expm1(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto [near, half, rest] = exp_parts(d, x);
  const V a = power_of_two(d, di, half), b = power_of_two(d, di, rest);
  const V less = hn::Sub(a, power_of_two(d, di, hn::Neg(rest)));  // (2^n - 1) / b
  const V y = hn::Mul(hn::MulAdd(near, a, less), b);
  const auto itself = hn::Or(hn::IsNaN(x), hn::Eq(x, hn::Zero(d)));
  return hn::IfThenElse(itself, x, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, vec_exp(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V two = hn::Set(d, 2.0f);
  const V size = hn::Abs(x);
  const V z = hn::Mul(x, x);
  const V p = horner(d, z,
                     {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                      -3.33332819422e-1f});
  const V small = hn::MulAdd(hn::Mul(p, z), x, x);
  const V large = hn::Sub(one, hn::Div(two, hn::Add(vec_exp(d, hn::Add(size, size)), one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, large), x);
}

// Two minimax polynomials (N. Juffa's erff): x + x p(x^2) near zero, 1 - exp(q(|x|)) elsewhere.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_erf(D d, V x) {
  const V t = hn::Abs(x);
  const V s = hn::Mul(x, x);
  V r = hn::MulAdd(hn::Set(d, -1.72853470e-5f), t, hn::Set(d, 3.83197126e-4f));
  const V u = hn::MulAdd(hn::Set(d, -3.88396438e-3f), t, hn::Set(d, 2.42546219e-2f));
  r = hn::MulAdd(r, s, u);
  r = hn::MulAdd(r, t, hn::Set(d, -1.06777877e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -6.34846687e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.28717512e-1f));
  r = hn::NegMulAdd(t, hn::Set(d, 1.0f), hn::Mul(r, t));
  // Beyond 4 the polynomial means nothing, and erf is 1.
  r = hn::IfThenElse(hn::Gt(t, hn::Set(d, 4.0f)), hn::Set(d, -104.0f), r);
  const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), vec_exp(d, r)), x);
  const V p = horner(d, s,
                     {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                      -3.76125336e-1f, 1.28379166e-1f});
  const V small = hn::MulAdd(p, x, x);
  return hn::IfThenElse(hn::Gt(t, hn::Set(d, 0.927734375f)), large, small);
}

// x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), which is the tanh form of GELU.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu_tanh(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
  const V u = hn::Mul(hn::Mul(x, inner), hn::Set(d, 1.5957691216057308f));
  return hn::Mul(x, vec_sigmoid(d, u));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu(D d, V x) {
  const V half = hn::Mul(x, hn::Set(d, 0.5f));
  const V erf = vec_erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f)));
  return hn::Mul(half, hn::Add(erf, hn::Set(d, 1.0f)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_silu(D d, V x) {
  return hn::Mul(x, vec_sigmoid(d, x));
}

// Lane by lane through the C library: for arguments beyond a vector kernel's range, and for pow.
template <class D, class V = hn::Vec<D>, class F>
HWY_INLINE V lanewise(D d, V x, V y, F f) {
  HWY_ALIGN float a[hn::MaxLanes(d)], b[hn::MaxLanes(d)];
  hn::Store(x, d, a);
  hn::Store(y, d, b);
  for (size_t i = 0; i < hn::Lanes(d); ++i) a[i] = f(a[i], b[i]);
  return hn::Load(d, a);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_sin(D d, V x) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 39000.0f)))))
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Sin(d, x));
  return lanewise(d, x, x, [](float a, float) { return std::sin(a); });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_cos(D d, V x) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 39000.0f))))) return hn::Cos(d, x);
  return lanewise(d, x, x, [](float a, float) { return std::cos(a); });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_pow(D d, V x, V y) {
  return lanewise(d, x, y, [](float a, float b) { return std::pow(a, b); });
}

// Maximum and minimum that give NaN when either side is NaN.
template <class V>
HWY_INLINE V vec_max(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
}

template <class V>
HWY_INLINE V vec_min(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b)));
}

}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ORT_CPU_VEC_MATH_INL_H_
