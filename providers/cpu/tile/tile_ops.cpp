// The instructions of tile programs on float32, written once with Highway and compiled for each
// vector target; tile/scalar.h says what they mean. tile.cpp asks for an instruction's function
// when a program is bound.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile/tile_ops.cpp"
#include <numeric>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/half-inl.h"
#include "providers/cpu/philox-inl.h"
#include "providers/cpu/some_lanes-inl.h"
#include "providers/cpu/tile/tile.h"
#include "providers/cpu/tile/vec_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The last, partial vector.
HWY_INLINE V load_part(const float* p, int64_t n) {
  return load_some(p, n);
}
HWY_INLINE void store_part(V v, float* p, int64_t n) {
  hn::BlendedStore(v, hn::FirstN(D(), static_cast<size_t>(n)), D(), p);
}

// An operand: a run of elements, or one for the whole run.
template <bool kBroadcast>
struct Operand {
  const float* p;
  V one;
  explicit Operand(const float* from) : p(from), one(hn::Zero(D())) {
    if constexpr (kBroadcast) one = hn::Set(D(), *from);
  }
  HWY_INLINE V at(int64_t i) const {
    if constexpr (kBroadcast) return one;
    return hn::LoadU(D(), p + i);
  }
  HWY_INLINE V part(int64_t i, int64_t n) const {
    if constexpr (kBroadcast) return one;
    return load_part(p + i, n);
  }
};

template <class F>
HWY_INLINE void each_vector(const TileArgs& t, F f) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= t.count; i += lanes) hn::StoreU(f(i, int64_t{0}), d, t.dst + i);
  if (i < t.count) store_part(f(i, t.count - i), t.dst + i, t.count - i);
}

template <class F, bool kA>
void unary(const TileArgs& t) {
  const Operand<kA> a(t.a);
  each_vector(t, [&](int64_t i, int64_t n) HWY_ATTR { return F::of(n ? a.part(i, n) : a.at(i)); });
}

template <class F, bool kA, bool kB>
void binary(const TileArgs& t) {
  const Operand<kA> a(t.a);
  const Operand<kB> b(t.b);
  each_vector(t, [&](int64_t i, int64_t n) HWY_ATTR {
    return n ? F::of(a.part(i, n), b.part(i, n)) : F::of(a.at(i), b.at(i));
  });
}

template <class F, bool kA, bool kB, bool kC>
void ternary(const TileArgs& t) {
  const Operand<kA> a(t.a);
  const Operand<kB> b(t.b);
  const Operand<kC> c(t.c);
  each_vector(t, [&](int64_t i, int64_t n) HWY_ATTR {
    return n ? F::of(a.part(i, n), b.part(i, n), c.part(i, n)) : F::of(a.at(i), b.at(i), c.at(i));
  });
}

template <class M>
HWY_INLINE V truth(M mask) {
  return hn::IfThenElseZero(mask, hn::Set(D(), 1.0f));
}
// A NaN is true; Highway's Ne says so on some targets only.
HWY_INLINE auto is_true(V x) {
  return hn::Not(hn::Eq(x, hn::Zero(D())));
}

// Named as the instructions are.
namespace vec {
#define ORT_UNARY(NAME, EXPRESSION) \
  struct NAME {                     \
    static HWY_INLINE V of(V x) {   \
      [[maybe_unused]] const D d;   \
      return EXPRESSION;            \
    }                               \
  };
#define ORT_BINARY(NAME, EXPRESSION)   \
  struct NAME {                        \
    static HWY_INLINE V of(V x, V y) { \
      [[maybe_unused]] const D d;      \
      return EXPRESSION;               \
    }                                  \
  };
ORT_UNARY(copy, x)
ORT_UNARY(neg, hn::Neg(x))
ORT_UNARY(abs, hn::Abs(x))
ORT_UNARY(exp, vec_exp(d, x))
ORT_UNARY(log, vec_log(d, x))
ORT_UNARY(log1p, vec_log1p(d, x))
ORT_UNARY(expm1, vec_expm1(d, x))
ORT_UNARY(log2, vec_log2(d, x))
ORT_UNARY(sqrt, hn::Sqrt(x))
ORT_UNARY(reciprocal, hn::Div(hn::Set(d, 1.0f), x))
ORT_UNARY(erf, vec_erf(d, x))
ORT_UNARY(tanh, vec_tanh(d, x))
ORT_UNARY(sigmoid, vec_sigmoid(d, x))
ORT_UNARY(relu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x))
ORT_UNARY(gelu, vec_gelu(d, x))
ORT_UNARY(gelu_tanh, vec_gelu_tanh(d, x))
ORT_UNARY(silu, vec_silu(d, x))
ORT_UNARY(gelu_derivative, vec_gelu_derivative(d, x))
ORT_UNARY(gelu_tanh_derivative, vec_gelu_tanh_derivative(d, x))
ORT_UNARY(silu_derivative, vec_silu_derivative(d, x))
ORT_UNARY(sin, vec_sin(d, x))
ORT_UNARY(cos, vec_cos(d, x))
ORT_UNARY(tan, vec_tan(d, x))
ORT_UNARY(asin, vec_asin(d, x))
ORT_UNARY(acos, vec_acos(d, x))
ORT_UNARY(atan, vec_atan(d, x))
ORT_UNARY(sinh, vec_sinh(d, x))
ORT_UNARY(cosh, vec_cosh(d, x))
ORT_UNARY(asinh, vec_asinh(d, x))
ORT_UNARY(acosh, vec_acosh(d, x))
ORT_UNARY(atanh, vec_atanh(d, x))
ORT_UNARY(floor, rounded(x, hn::Floor(x)))
ORT_UNARY(ceil, rounded(x, hn::Ceil(x)))
ORT_UNARY(round, rounded(x, hn::Round(x)))
ORT_UNARY(sign, hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), x),
                               hn::Add(x, hn::Zero(d))))
ORT_UNARY(is_nan, truth(hn::IsNaN(x)))
ORT_UNARY(is_inf, truth(hn::Eq(hn::Abs(x), hn::Set(d, kInfinity))))
ORT_UNARY(to_bf16, round_to_bf16(d, x))
ORT_UNARY(to_f16, round_to_f16(d, x))
ORT_UNARY(logical_not, truth(hn::Eq(x, hn::Zero(d))))
ORT_UNARY(square, hn::Mul(x, x))
ORT_BINARY(add, hn::Add(x, y))
ORT_BINARY(sub, hn::Sub(x, y))
ORT_BINARY(mul, hn::Mul(x, y))
ORT_BINARY(div, hn::Div(x, y))
ORT_BINARY(max, vec_max(x, y))
ORT_BINARY(min, vec_min(x, y))
ORT_BINARY(pow, vec_pow(d, x, y))
ORT_BINARY(mod, vec_mod(d, x, y))
ORT_BINARY(fmod, vec_fmod(d, x, y))
ORT_BINARY(equal, truth(hn::Eq(x, y)))
ORT_BINARY(less, truth(hn::Lt(x, y)))
ORT_BINARY(less_equal, truth(hn::Le(x, y)))
ORT_BINARY(logical_and, truth(hn::And(is_true(x), is_true(y))))
ORT_BINARY(logical_or, truth(hn::Or(is_true(x), is_true(y))))
ORT_BINARY(logical_xor, truth(hn::Xor(is_true(x), is_true(y))))
#undef ORT_UNARY
#undef ORT_BINARY
struct where {
  static HWY_INLINE V of(V c, V x, V y) { return hn::IfThenElse(is_true(c), x, y); }
};
struct mul_add {
  static HWY_INLINE V of(V x, V y, V z) { return hn::MulAdd(x, y, z); }
};
}  // namespace vec

// Sums are made block by block: the error grows with how long a block is, not with the run.
constexpr int64_t kBlock = 8;  // of four vectors
// Folds a run into one number with four vectors in flight.
template <class Combine, class Load>
HWY_INLINE float fold(int64_t count, float start, Load load, Combine combine) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Set(d, start), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = combine(s0, load(i));
    s1 = combine(s1, load(i + lanes));
    s2 = combine(s2, load(i + 2 * lanes));
    s3 = combine(s3, load(i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) s0 = combine(s0, load(i));
  HWY_ALIGN float cells[hn::MaxLanes(D())];
  hn::Store(combine(combine(s0, s1), combine(s2, s3)), d, cells);
  return std::accumulate(cells, cells + lanes, start,
                         [](float a, float b) { return Combine::one(a, b); });
}

struct Largest {
  HWY_INLINE V operator()(V a, V b) const { return vec_max(a, b); }
  static float one(float a, float b) { return std::isnan(a) || a > b ? a : b; }
};
struct Smallest {
  HWY_INLINE V operator()(V a, V b) const { return vec_min(a, b); }
  static float one(float a, float b) { return std::isnan(a) || a < b ? a : b; }
};

// The same of a sum, whose blocks are added in float64.
template <class Load>
HWY_INLINE double sum_vectors(int64_t count, Load load) {
  const D d;
  const hn::Half<D> half;
  const hn::Rebind<double, hn::Half<D>> wide;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto low = hn::Zero(wide), high = low;
  for (int64_t i = 0; i < count;) {
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const int64_t end = std::min(count, i + kBlock * 4 * lanes);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      s0 = hn::Add(s0, load(i));
      s1 = hn::Add(s1, load(i + lanes));
      s2 = hn::Add(s2, load(i + 2 * lanes));
      s3 = hn::Add(s3, load(i + 3 * lanes));
    }
    for (; i < end; i += lanes) s0 = hn::Add(s0, load(i));
    const V sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    low = hn::Add(low, hn::PromoteTo(wide, hn::LowerHalf(half, sum)));
    high = hn::Add(high, hn::PromoteTo(wide, hn::UpperHalf(half, sum)));
  }
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(low, high)));
}

template <class Combine>
void fold_row(const TileArgs& t, float start) {
  const int64_t whole = t.count - t.count % static_cast<int64_t>(hn::Lanes(D()));
  float result =
      fold(whole, start, [&](int64_t i) HWY_ATTR { return hn::LoadU(D(), t.a + i); }, Combine());
  for (int64_t i = whole; i < t.count; ++i) result = Combine::one(result, t.a[i]);
  *t.dst = result;
}

void row_sum(const TileArgs& t) {
  const int64_t whole = t.count - t.count % static_cast<int64_t>(hn::Lanes(D()));
  double sum = sum_vectors(whole, [&](int64_t i) HWY_ATTR { return hn::LoadU(D(), t.a + i); });
  for (int64_t i = whole; i < t.count; ++i) sum += t.a[i];
  *t.dst = static_cast<float>(sum * t.p);
}
void row_max(const TileArgs& t) {
  fold_row<Largest>(t, -kInfinity);
}
void row_min(const TileArgs& t) {
  fold_row<Smallest>(t, kInfinity);
}

template <bool kA, bool kB>
void row_dot(const TileArgs& t) {
  const Operand<kA> a(t.a);
  const Operand<kB> b(t.b);
  const int64_t whole = t.count - t.count % static_cast<int64_t>(hn::Lanes(D()));
  double sum = sum_vectors(whole, [&](int64_t i) HWY_ATTR { return hn::Mul(a.at(i), b.at(i)); });
  for (int64_t i = whole; i < t.count; ++i) sum += t.a[kA ? 0 : i] * t.b[kB ? 0 : i];
  *t.dst = static_cast<float>(sum * t.p);
}

template <bool kA>
void column_sum(const TileArgs& t) {
  const Operand<kA> a(t.a);
  each_vector(t, [&](int64_t i, int64_t n) HWY_ATTR {
    return n ? hn::Add(load_part(t.dst + i, n), a.part(i, n))
             : hn::Add(hn::LoadU(D(), t.dst + i), a.at(i));
  });
}

template <bool kA, bool kB>
void column_dot(const TileArgs& t) {
  const Operand<kA> a(t.a);
  const Operand<kB> b(t.b);
  each_vector(t, [&](int64_t i, int64_t n) HWY_ATTR {
    return n ? hn::MulAdd(a.part(i, n), b.part(i, n), load_part(t.dst + i, n))
             : hn::MulAdd(a.at(i), b.at(i), hn::LoadU(D(), t.dst + i));
  });
}

void dropout(const TileArgs& t) {
  dropout_row(t.a, t.dst, static_cast<size_t>(t.count), t.key, t.counter, t.index, t.p);
}

template <class F>
TileFunction unary_variant(int v) {
  return v & 1 ? unary<F, true> : unary<F, false>;
}

template <class F>
TileFunction binary_variant(int v) {
  constexpr TileFunction kTable[] = {binary<F, false, false>, binary<F, true, false>,
                                     binary<F, false, true>, binary<F, true, true>};
  return kTable[v & 3];
}

template <class F>
TileFunction ternary_variant(int v) {
  constexpr TileFunction kTable[] = {
      ternary<F, false, false, false>, ternary<F, true, false, false>,
      ternary<F, false, true, false>,  ternary<F, true, true, false>,
      ternary<F, false, false, true>,  ternary<F, true, false, true>,
      ternary<F, false, true, true>,   ternary<F, true, true, true>};
  return kTable[v & 7];
}

template <bool kA>
TileFunction dot_function(TileOp op, bool b) {
  if (op == TileOp::row_dot) return b ? row_dot<kA, true> : row_dot<kA, false>;
  return b ? column_dot<kA, true> : column_dot<kA, false>;
}

#define ORT_UNARY(NAME) \
  case TileOp::NAME:    \
    return unary_variant<vec::NAME>(v);
#define ORT_BINARY(NAME) \
  case TileOp::NAME:     \
    return binary_variant<vec::NAME>(v);
#define ORT_TERNARY(NAME) \
  case TileOp::NAME:      \
    return ternary_variant<vec::NAME>(v);
TileFunction choose(TileOp op, int v) {
  switch (op) {
    ORT_TILE_ARITHMETIC_1(ORT_UNARY)
    ORT_TILE_FUNCTIONS(ORT_UNARY)
    ORT_TILE_LIBRARY(ORT_UNARY)
    ORT_TILE_ARITHMETIC_2(ORT_BINARY)
    ORT_TILE_FUNCTIONS_2(ORT_BINARY)
    ORT_TILE_REMAINDERS(ORT_BINARY)
    ORT_TILE_ARITHMETIC_3(ORT_TERNARY)
    case TileOp::row_sum:
      return row_sum;
    case TileOp::row_max:
      return row_max;
    case TileOp::row_min:
      return row_min;
    case TileOp::column_sum:
      return v & 1 ? column_sum<true> : column_sum<false>;
    case TileOp::row_dot:
    case TileOp::column_dot:
      return v & 1 ? dot_function<true>(op, v & 2) : dot_function<false>(op, v & 2);
    case TileOp::dropout:
      return dropout;
    default:
      return nullptr;
  }
}
#undef ORT_UNARY
#undef ORT_BINARY
#undef ORT_TERNARY

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(choose);
TileFunction vector_function(TileOp op, int variant) {
  return HWY_DYNAMIC_DISPATCH(choose)(op, variant);
}
}  // namespace ort::cpu
#endif
