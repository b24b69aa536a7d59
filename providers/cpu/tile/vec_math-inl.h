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

// Without SSE4, Highway 1.0 chooses by each bit of x, where its sign is to choose.
template <class V>
HWY_INLINE V if_negative(V x, V yes, V no) {
#if HWY_TARGET == HWY_SSSE3
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  x = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(di, x)));
#endif
  return hn::IfNegativeThenElse(x, yes, no);
}

// x, rounded to an integer; without SSE4, Highway 1.0 gives zero for -0.
template <class V>
HWY_INLINE V rounded(V x, V integer) {
#if HWY_TARGET == HWY_SSSE3
  integer = hn::CopySign(integer, x);
#endif
  static_cast<void>(x);
  return integer;
}

// Coefficients from the highest power down; a pack, as GCC keeps a loop over a list one.
template <class D, class V, class... Floats>
HWY_INLINE V horner(D d, V x, float highest, Floats... rest) {
  V y = hn::Set(d, highest);
  ((y = hn::MulAdd(y, x, hn::Set(d, rest))), ...);
  return y;
}

// 2^n for integers n in the normal range.
template <class D, class DI, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, DI di, hn::Vec<DI> n) {
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// exp(x) = 2^n (1 + near), x in about -176 to 89.
template <class V>
struct ExpParts {
  V n, near;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE ExpParts<V> exp_parts(D d, V x) {
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const V p = horner(d, r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                     1.6666665459e-1f, 5.0000001201e-1f);
  return {n, hn::MulAdd(p, hn::Mul(r, r), r)};
}

// Integers n as two halves: 2^n is a product of two powers, of which infinity and denormals come.
template <class I>
struct Halves {
  I half, rest;
};

template <class V, class DI = hn::RebindToSigned<hn::DFromV<V>>>
HWY_INLINE Halves<hn::Vec<DI>> halves_of(V n) {
  const auto whole = hn::ConvertTo(DI(), n);
  const auto half = hn::ShiftRight<1>(whole);
  return {half, hn::Sub(whole, half)};
}

// exp for arguments that are known to be at most about 88 (softmax: at most 0); NaN gives NaN.
// What underflows takes an Intel core some hundred cycles, and masks make many such numbers: below
// -104 nothing is computed.
#if HWY_TARGET <= HWY_AVX3
// One instruction scales by 2^n. The bound comes first: of NaN a minimum gives the second operand.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp(D d, V x) {
  const __mmask16 there = _mm512_cmp_ps_mask(x.raw, hn::Set(d, -104.0f).raw, _CMP_NLT_UQ);
  const auto [n, near] = exp_parts(d, hn::Min(hn::Set(d, 89.0f), x));
  return V{_mm512_maskz_scalef_ps(there, hn::Add(near, hn::Set(d, 1.0f)).raw, n.raw)};
}
#else
// At -176 both powers have the bits of zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto vanishes = hn::Lt(x, hn::Set(d, -104.0f));
  const V most = hn::Min(x, hn::Set(d, 89.0f));
  const auto [n, near] = exp_parts(d, hn::IfThenElse(vanishes, hn::Set(d, -176.0f), most));
  const auto [half, rest] = halves_of(n);
  const V y = hn::Mul(hn::Add(near, hn::Set(d, 1.0f)), power_of_two(d, di, half));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(y, power_of_two(d, di, rest)));
}
#endif

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
  const V y = horner(d, m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                     1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                     3.3333331174e-1f);
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
  const V within = hn::Max(hn::Min(x, hn::Set(d, 89.0f)), hn::Set(d, -104.0f));
  const auto [n, near] = exp_parts(d, within);
  const auto [half, rest] = halves_of(n);
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
  const V p = horner(d, z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                     1.33314422036e-1f, -3.33332819422e-1f);
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
  r = hn::IfThenElse(hn::Gt(t, hn::Set(d, 4.0f)), hn::Set(d, -32.0f), r);
  const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), vec_exp(d, r)), x);
  const V p = horner(d, s, -5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                     -3.76125336e-1f, 1.28379166e-1f);
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

// The normal distribution beyond t = |x|: its density is power / sqrt(2 pi), its mass power *
// mills.
template <class V>
struct NormalTail {
  V power, mills;
};

// mills(t) = exp(t^2 / 2) erfc(t / sqrt(2)) / 2 as s p(s) with s = 1 / (1 + 0.27 t), fitted for the
// least relative error on [0, 14.5]: 2.4e-8.
template <class D, class V = hn::Vec<D>>
HWY_INLINE NormalTail<V> normal_tail(D d, V x, V t) {
  const V one = hn::Set(d, 1.0f);
  const V s = hn::Div(one, hn::MulAdd(t, hn::Set(d, 0.27f), one));
  const V p = horner(d, s, 2.896120958e-02f, -1.264863759e-01f, 1.697872132e-01f, -6.921195239e-02f,
                     1.078264341e-01f, 7.204927504e-02f, 1.018106937e-01f, 1.075428650e-01f,
                     1.077206582e-01f);
  return {vec_exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f))), hn::Mul(p, s)};
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu(D d, V x) {
  const auto [power, mills] = normal_tail(d, x, hn::Abs(x));
  const V tail = hn::Mul(power, mills);
  return hn::Mul(x, if_negative(x, tail, hn::Sub(hn::Set(d, 1.0f), tail)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu_derivative(D d, V x) {
  const V t = hn::Abs(x);
  const auto [power, mills] = normal_tail(d, x, t);
  const V below = hn::Mul(power, hn::NegMulAdd(t, hn::Set(d, 0.3989422804f), mills));  // x < 0
  return if_negative(x, below, hn::Sub(hn::Set(d, 1.0f), below));
}

// sigmoid(x) and its derivative, without 1 - sigmoid(x), which cancels.
template <class V>
struct Sigmoid {
  V value, slope;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Sigmoid<V> sigmoid_and_slope(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V power = vec_exp(d, hn::Neg(hn::Abs(x)));
  const V large = hn::Div(one, hn::Add(one, power));
  const V small = hn::Mul(power, large);
  return {if_negative(x, small, large), hn::Mul(small, large)};
}

// An infinite square gives NaN, as in torch.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu_tanh_derivative(D d, V x) {
  const V scale = hn::Set(d, 1.5957691216057308f), one = hn::Set(d, 1.0f);
  const V square = hn::Mul(x, x);
  const V inner = hn::MulAdd(square, hn::Set(d, 0.044715f), one);
  const auto [value, slope] = sigmoid_and_slope(d, hn::Mul(hn::Mul(x, inner), scale));
  const V factor = hn::Mul(hn::MulAdd(square, hn::Set(d, 0.134145f), one), scale);
  return hn::MulAdd(hn::Mul(slope, factor), x, value);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_silu(D d, V x) {
  return hn::Mul(x, vec_sigmoid(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_silu_derivative(D d, V x) {
  const auto [value, slope] = sigmoid_and_slope(d, x);
  return hn::MulAdd(slope, x, value);
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

// Inverse and hyperbolic functions after S. Moshier's single precision library.

// asin(s) of s in [0, 0.5], from its square.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V asin_part(D d, V s, V square) {
  const V p = horner(d, square, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f,
                     7.4953002686e-2f, 1.6666752422e-1f);
  return hn::MulAdd(hn::Mul(p, square), s, s);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_asin(D d, V x) {
  const V size = hn::Abs(x), half = hn::Set(d, 0.5f);
  const auto large = hn::Gt(size, half);
  const V square = hn::IfThenElse(large, hn::NegMulAdd(half, size, half), hn::Mul(size, size));
  const V part = asin_part(d, hn::IfThenElse(large, hn::Sqrt(square), size), square);
  const V rest = hn::NegMulAdd(hn::Set(d, 2.0f), part, hn::Set(d, 1.57079632679489662f));
  return hn::CopySign(hn::IfThenElse(large, rest, part), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_acos(D d, V x) {
  const V size = hn::Abs(x), half = hn::Set(d, 0.5f);
  const V square = hn::NegMulAdd(half, size, half);
  const V near = hn::Mul(hn::Set(d, 2.0f), asin_part(d, hn::Sqrt(square), square));
  const V far = hn::Sub(hn::Set(d, 3.14159265358979324f), near);
  const V inner = hn::Sub(hn::Set(d, 1.57079632679489662f), vec_asin(d, x));
  const V outer = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), far, near);
  return hn::IfThenElse(hn::Gt(size, half), outer, inner);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_atan(D d, V x) {
  const V t = hn::Abs(x), one = hn::Set(d, 1.0f);
  const auto large = hn::Gt(t, hn::Set(d, 2.414213562373095f));
  const auto middle = hn::Gt(t, hn::Set(d, 0.414213562373095f));
  const V top = hn::IfThenElse(large, hn::Neg(one), hn::Sub(t, one));
  const V bottom = hn::IfThenElse(large, t, hn::Add(t, one));
  const V r = hn::IfThenElse(middle, hn::Div(top, bottom), t);
  const V base = hn::IfThenElse(large, hn::Set(d, 1.57079632679489662f),
                                hn::IfThenElseZero(middle, hn::Set(d, 0.78539816339744831f)));
  const V z = hn::Mul(r, r);
  const V p =
      horner(d, z, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f, -3.33329491539e-1f);
  return hn::CopySign(hn::Add(base, hn::MulAdd(hn::Mul(p, z), r, r)), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_tan(D d, V x) {
  if (!HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 1000.0f)))))
    return lanewise(d, x, x, [](float a, float) { return std::tan(a); });
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 0.63661977236758134f)));
  V y = hn::NegMulAdd(n, hn::Set(d, 1.5703125f), x);
  y = hn::NegMulAdd(n, hn::Set(d, 4.837512969970703125e-4f), y);
  y = hn::NegMulAdd(n, hn::Set(d, 7.54978995489188216e-8f), y);
  const V z = hn::Mul(y, y);
  const V p = horner(d, z, 9.38540185543e-3f, 3.11992232697e-3f, 2.44301354525e-2f,
                     5.34112807005e-2f, 1.33387994085e-1f, 3.33331568548e-1f);
  const V tan = hn::MulAdd(hn::Mul(p, z), y, y);
  const auto odd = hn::Ne(hn::And(hn::ConvertTo(di, n), hn::Set(di, 1)), hn::Zero(di));
  const V signed_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, tan);
  return hn::IfThenElse(hn::RebindMask(d, odd), hn::Div(hn::Set(d, -1.0f), tan), signed_zero);
}

// (e^t + sign e^-t) / 2 of t >= 0; where e^t is no float32 by its square root.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V half_exps(D d, V t, float sign) {
  const V half = hn::Set(d, 0.5f);
  const V e = vec_exp(d, t), root = vec_exp(d, hn::Mul(half, t));
  const V both = hn::Mul(half, hn::Add(e, hn::Div(hn::Set(d, sign), e)));
  return hn::IfThenElse(hn::Gt(t, hn::Set(d, 88.0f)), hn::Mul(hn::Mul(half, root), root), both);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_cosh(D d, V x) {
  return half_exps(d, hn::Abs(x), 1.0f);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_sinh(D d, V x) {
  const V t = hn::Abs(x), z = hn::Mul(x, x);
  const V p = horner(d, z, 2.03721912945e-4f, 8.33028376239e-3f, 1.66667160211e-1f);
  const V small = hn::MulAdd(hn::Mul(p, z), t, t);
  const auto near = hn::Lt(t, hn::Set(d, 1.0f));
  return hn::CopySign(hn::IfThenElse(near, small, half_exps(d, t, -1.0f)), x);
}

// log(2 t): what asinh and acosh are far out.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_double(D d, V t) {
  return hn::Add(vec_log(d, t), hn::Set(d, 0.69314718055994531f));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_asinh(D d, V x) {
  const V t = hn::Abs(x), one = hn::Set(d, 1.0f), z = hn::Mul(t, t);
  const V more = hn::Div(z, hn::Add(one, hn::Sqrt(hn::Add(z, one))));
  const V near = vec_log1p(d, hn::Add(t, more));
  const auto far = hn::Gt(t, hn::Set(d, 1e4f));
  return hn::CopySign(hn::IfThenElse(far, log_of_double(d, t), near), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_acosh(D d, V x) {
  const V one = hn::Set(d, 1.0f), more = hn::Sub(x, one);
  const V near = vec_log1p(d, hn::Add(more, hn::Sqrt(hn::Mul(more, hn::Add(x, one)))));
  const auto far = hn::Gt(x, hn::Set(d, 1e4f));
  const V y = hn::IfThenElse(far, log_of_double(d, x), near);
  const V none = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Lt(x, one), none, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_atanh(D d, V x) {
  const V t = hn::Abs(x), one = hn::Set(d, 1.0f);
  const V y = vec_log1p(d, hn::Div(hn::Add(t, t), hn::Sub(one, t)));
  return hn::CopySign(hn::Mul(hn::Set(d, 0.5f), y), x);
}

// Exact: a quotient that is rounded is at most one off, and the product is not rounded.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_fmod(D d, V x, V y) {
#if HWY_NATIVE_FMA
  const V a = hn::Abs(x), b = hn::Abs(y);
  const V q = hn::Trunc(hn::Div(a, b));
  const auto normal = hn::And(hn::Gt(b, hn::Set(d, 1e-30f)), hn::Lt(b, hn::Set(d, kInfinity)));
  if (HWY_LIKELY(hn::AllTrue(d, hn::And(normal, hn::Lt(q, hn::Set(d, 4194304.0f)))))) {
    V r = hn::NegMulAdd(q, b, a);
    r = hn::IfThenElse(hn::Lt(r, hn::Zero(d)), hn::Add(r, b), r);
    r = hn::IfThenElse(hn::Ge(r, b), hn::Sub(r, b), r);
    return hn::CopySign(r, x);
  }
#endif
  return lanewise(d, x, y, [](float a, float b) { return std::fmod(a, b); });
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_mod(D d, V x, V y) {
  const V m = vec_fmod(d, x, y), zero = hn::Zero(d);
  const auto other = hn::Xor(hn::Lt(m, zero), hn::Lt(y, zero));
  return hn::IfThenElse(hn::And(other, hn::Not(hn::Eq(m, zero))), hn::Add(m, y), m);
}

// Maximum and minimum that give NaN when either side is NaN. x86's own give the second side then.
template <class V>
HWY_INLINE V nan_of_second(V b, V y) {
#if HWY_ARCH_X86
  (void)b;
  return y;
#else
  return hn::IfThenElse(hn::IsNaN(b), b, y);
#endif
}

template <class V>
HWY_INLINE V vec_max(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, nan_of_second(b, hn::Max(a, b)));
}

template <class V>
HWY_INLINE V vec_min(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(a), a, nan_of_second(b, hn::Min(a, b)));
}

}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ORT_CPU_VEC_MATH_INL_H_
