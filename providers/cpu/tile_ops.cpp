// The instructions of tile programs, written once with Highway and compiled for each vector target.
// tile.cpp asks for an instruction's function when a program is built.
#include "providers/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile_ops.cpp"
#include <cstring>
#include <numeric>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/philox-inl.h"
#include "providers/cpu/tile.h"
#include "providers/cpu/vec_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The last, partial vector goes through a buffer: masked loads may fault on older targets.
HWY_INLINE V load_part(const float* p, int64_t n) {
  const D d;
  HWY_ALIGN float buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(d, buffer);
}

HWY_INLINE void store_part(V v, float* p, int64_t n) {
  const D d;
  HWY_ALIGN float buffer[hn::MaxLanes(D())];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
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
HWY_INLINE auto is_true(V x) {
  return hn::Ne(x, hn::Zero(D()));
}

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
ORT_UNARY(Copy, x)
ORT_UNARY(Neg, hn::Neg(x))
ORT_UNARY(Abs, hn::Abs(x))
ORT_UNARY(Exp, vec_exp(d, x))
ORT_UNARY(Log, vec_log(d, x))
ORT_UNARY(Log1p, vec_log1p(d, x))
ORT_UNARY(Expm1, vec_expm1(d, x))
ORT_UNARY(Log2, vec_log2(d, x))
ORT_UNARY(Sqrt, hn::Sqrt(x))
ORT_UNARY(Reciprocal, hn::Div(hn::Set(d, 1.0f), x))
ORT_UNARY(Erf, vec_erf(d, x))
ORT_UNARY(Tanh, vec_tanh(d, x))
ORT_UNARY(Sigmoid, vec_sigmoid(d, x))
ORT_UNARY(Relu, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x))
ORT_UNARY(Gelu, vec_gelu(d, x))
ORT_UNARY(GeluTanh, vec_gelu_tanh(d, x))
ORT_UNARY(Silu, vec_silu(d, x))
ORT_UNARY(Sin, vec_sin(d, x))
ORT_UNARY(Cos, vec_cos(d, x))
ORT_UNARY(Floor, hn::Floor(x))
ORT_UNARY(Ceil, hn::Ceil(x))
ORT_UNARY(Round, hn::Round(x))
ORT_UNARY(Sign, hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), x),
                               hn::Zero(d)))
ORT_UNARY(IsNan, truth(hn::IsNaN(x)))
ORT_UNARY(IsInf, truth(hn::Eq(hn::Abs(x), hn::Set(d, kInfinity))))
ORT_UNARY(Not, truth(hn::Eq(x, hn::Zero(d))))
ORT_UNARY(Square, hn::Mul(x, x))
ORT_BINARY(Add, hn::Add(x, y))
ORT_BINARY(Sub, hn::Sub(x, y))
ORT_BINARY(Mul, hn::Mul(x, y))
ORT_BINARY(Div, hn::Div(x, y))
ORT_BINARY(Max, vec_max(x, y))
ORT_BINARY(Min, vec_min(x, y))
ORT_BINARY(Pow, vec_pow(d, x, y))
ORT_BINARY(Equal, truth(hn::Eq(x, y)))
ORT_BINARY(Less, truth(hn::Lt(x, y)))
ORT_BINARY(LessEqual, truth(hn::Le(x, y)))
ORT_BINARY(And, truth(hn::And(is_true(x), is_true(y))))
ORT_BINARY(Or, truth(hn::Or(is_true(x), is_true(y))))
ORT_BINARY(Xor, truth(hn::Xor(is_true(x), is_true(y))))
#undef ORT_UNARY
#undef ORT_BINARY
struct Where {
  static HWY_INLINE V of(V c, V x, V y) { return hn::IfThenElse(is_true(c), x, y); }
};
struct MulAdd {
  static HWY_INLINE V of(V x, V y, V z) { return hn::MulAdd(x, y, z); }
};

// Folds a run into one number with four vectors in flight, which also keeps long sums accurate.
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

struct Sum {
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
  static float one(float a, float b) { return a + b; }
};
struct Largest {
  HWY_INLINE V operator()(V a, V b) const { return vec_max(a, b); }
  static float one(float a, float b) { return std::isnan(a) || a > b ? a : b; }
};
struct Smallest {
  HWY_INLINE V operator()(V a, V b) const { return vec_min(a, b); }
  static float one(float a, float b) { return std::isnan(a) || a < b ? a : b; }
};

template <class Combine>
void fold_row(const TileArgs& t, float start) {
  const int64_t whole = t.count - t.count % static_cast<int64_t>(hn::Lanes(D()));
  float result =
      fold(whole, start, [&](int64_t i) HWY_ATTR { return hn::LoadU(D(), t.a + i); }, Combine());
  for (int64_t i = whole; i < t.count; ++i) result = Combine::one(result, t.a[i]);
  *t.dst = result;
}

void row_sum(const TileArgs& t) {
  fold_row<Sum>(t, 0.0f);
  *t.dst *= t.p;
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
  float result =
      fold(whole, 0.0f, [&](int64_t i) HWY_ATTR { return hn::Mul(a.at(i), b.at(i)); }, Sum());
  for (int64_t i = whole; i < t.count; ++i) result += t.a[kA ? 0 : i] * t.b[kB ? 0 : i];
  *t.dst = result * t.p;
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

TileFunction unary_function(TileOp op, int v) {
  switch (op) {
    case TileOp::copy:
      return unary_variant<Copy>(v);
    case TileOp::neg:
      return unary_variant<Neg>(v);
    case TileOp::abs:
      return unary_variant<Abs>(v);
    case TileOp::exp:
      return unary_variant<Exp>(v);
    case TileOp::log:
      return unary_variant<Log>(v);
    case TileOp::log1p:
      return unary_variant<Log1p>(v);
    case TileOp::expm1:
      return unary_variant<Expm1>(v);
    case TileOp::log2:
      return unary_variant<Log2>(v);
    case TileOp::sqrt:
      return unary_variant<Sqrt>(v);
    case TileOp::reciprocal:
      return unary_variant<Reciprocal>(v);
    case TileOp::erf:
      return unary_variant<Erf>(v);
    case TileOp::tanh:
      return unary_variant<Tanh>(v);
    case TileOp::sigmoid:
      return unary_variant<Sigmoid>(v);
    case TileOp::relu:
      return unary_variant<Relu>(v);
    case TileOp::gelu:
      return unary_variant<Gelu>(v);
    case TileOp::gelu_tanh:
      return unary_variant<GeluTanh>(v);
    case TileOp::silu:
      return unary_variant<Silu>(v);
    case TileOp::sin:
      return unary_variant<Sin>(v);
    case TileOp::cos:
      return unary_variant<Cos>(v);
    case TileOp::floor:
      return unary_variant<Floor>(v);
    case TileOp::ceil:
      return unary_variant<Ceil>(v);
    case TileOp::round:
      return unary_variant<Round>(v);
    case TileOp::sign:
      return unary_variant<Sign>(v);
    case TileOp::is_nan:
      return unary_variant<IsNan>(v);
    case TileOp::is_inf:
      return unary_variant<IsInf>(v);
    case TileOp::logical_not:
      return unary_variant<Not>(v);
    case TileOp::square:
      return unary_variant<Square>(v);
    default:
      return nullptr;
  }
}

TileFunction wider_function(TileOp op, int v) {
  switch (op) {
    case TileOp::add:
      return binary_variant<Add>(v);
    case TileOp::sub:
      return binary_variant<Sub>(v);
    case TileOp::mul:
      return binary_variant<Mul>(v);
    case TileOp::div:
      return binary_variant<Div>(v);
    case TileOp::max:
      return binary_variant<Max>(v);
    case TileOp::min:
      return binary_variant<Min>(v);
    case TileOp::pow:
      return binary_variant<Pow>(v);
    case TileOp::equal:
      return binary_variant<Equal>(v);
    case TileOp::less:
      return binary_variant<Less>(v);
    case TileOp::less_equal:
      return binary_variant<LessEqual>(v);
    case TileOp::logical_and:
      return binary_variant<And>(v);
    case TileOp::logical_or:
      return binary_variant<Or>(v);
    case TileOp::logical_xor:
      return binary_variant<Xor>(v);
    case TileOp::where:
      return ternary_variant<Where>(v);
    case TileOp::mul_add:
      return ternary_variant<MulAdd>(v);
    default:
      return nullptr;
  }
}

template <bool kA>
TileFunction dot_function(TileOp op, bool b) {
  if (op == TileOp::row_dot) return b ? row_dot<kA, true> : row_dot<kA, false>;
  return b ? column_dot<kA, true> : column_dot<kA, false>;
}

TileFunction choose(TileOp op, int v) {
  switch (op) {
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
      break;
  }
  if (const TileFunction found = unary_function(op, v)) return found;
  return wider_function(op, v);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(choose);
TileFunction tile_function(TileOp op, int variant) {
  return HWY_DYNAMIC_DISPATCH(choose)(op, variant);
}
}  // namespace ort::cpu
#endif
