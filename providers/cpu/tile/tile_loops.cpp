// Instructions as loops over their scalar meaning, for every element type: what runs doubles and
// integers, and float32 where there is no vector code.
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

namespace scalar = tile::scalar;

// Element i of an operand, or its one.
template <class T>
const T& at(const T* operand, bool one, int64_t i) {
  return operand[one ? 0 : i];
}

template <class T, T (*F)(T)>
void unary(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1;
  for (int64_t i = 0; i < t.count; ++i) t.dst[i] = F(at(t.a, a, i));
}

template <class T, T (*F)(T, T)>
void binary(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1, b = t.variant & 2;
  for (int64_t i = 0; i < t.count; ++i) t.dst[i] = F(at(t.a, a, i), at(t.b, b, i));
}

template <class T, T (*F)(T, T, T)>
void ternary(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1, b = t.variant & 2, c = t.variant & 4;
  for (int64_t i = 0; i < t.count; ++i) t.dst[i] = F(at(t.a, a, i), at(t.b, b, i), at(t.c, c, i));
}

template <class T>
void row_sum(const TileArgsOf<T>& t) {
  T sum = 0;
  for (int64_t i = 0; i < t.count; ++i) sum += t.a[i];
  *t.dst = sum * t.p;
}

template <class T, T (*F)(T, T)>
void row_extremum(const TileArgsOf<T>& t, T start) {
  for (int64_t i = 0; i < t.count; ++i) start = F(start, t.a[i]);
  *t.dst = start;
}
template <class T>
void row_max(const TileArgsOf<T>& t) {
  row_extremum<T, scalar::max<T>>(t, scalar::kLowest<T>);
}
template <class T>
void row_min(const TileArgsOf<T>& t) {
  row_extremum<T, scalar::min<T>>(t, -scalar::kLowest<T>);
}

template <class T>
void row_dot(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1, b = t.variant & 2;
  T sum = 0;
  for (int64_t i = 0; i < t.count; ++i) sum += at(t.a, a, i) * at(t.b, b, i);
  *t.dst = sum * t.p;
}

template <class T>
void column_sum(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1;
  for (int64_t i = 0; i < t.count; ++i) t.dst[i] += at(t.a, a, i);
}

template <class T>
void column_dot(const TileArgsOf<T>& t) {
  const bool a = t.variant & 1, b = t.variant & 2;
  for (int64_t i = 0; i < t.count; ++i) t.dst[i] += at(t.a, a, i) * at(t.b, b, i);
}

template <class T>
void dropout(const TileArgsOf<T>& t) {
  for (int64_t i = 0; i < t.count; ++i)
    t.dst[i] = scalar::dropout(t.a[i], t.p, t.key, t.counter, t.index + static_cast<uint64_t>(i));
}

#define ORT_UNARY(NAME) \
  case TileOp::NAME:    \
    return unary<T, scalar::NAME<T>>;
#define ORT_BINARY(NAME) \
  case TileOp::NAME:     \
    return binary<T, scalar::NAME<T>>;
#define ORT_TERNARY(NAME) \
  case TileOp::NAME:      \
    return ternary<T, scalar::NAME<T>>;
#define ORT_WHOLE(NAME) \
  case TileOp::NAME:    \
    return NAME<T>;

template <class T>
TileFunctionOf<T> of_floats(TileOp op) {
  switch (op) {
    ORT_TILE_FUNCTIONS(ORT_UNARY)
    ORT_TILE_LIBRARY(ORT_UNARY)
    ORT_TILE_FUNCTIONS_2(ORT_BINARY)
    ORT_TILE_ROWS(ORT_WHOLE)
    ORT_TILE_COLUMNS(ORT_WHOLE)
    ORT_WHOLE(dropout)
    default:
      return nullptr;
  }
}

template <class T>
TileFunctionOf<T> of_integers(TileOp op) {
  switch (op) {
    ORT_UNARY(bit_not)
    ORT_BINARY(pow)
    ORT_TILE_BITS(ORT_BINARY)
    default:
      return nullptr;
  }
}

}  // namespace

template <class T>
TileFunctionOf<T> loop_function(TileOp op) {
  switch (op) {
    ORT_TILE_ARITHMETIC_1(ORT_UNARY)
    ORT_TILE_ARITHMETIC_2(ORT_BINARY)
    ORT_TILE_REMAINDERS(ORT_BINARY)
    ORT_TILE_ARITHMETIC_3(ORT_TERNARY)
    default:
      if constexpr (std::is_integral_v<T>)
        return of_integers<T>(op);
      else
        return of_floats<T>(op);
  }
}
#undef ORT_UNARY
#undef ORT_BINARY
#undef ORT_TERNARY
#undef ORT_WHOLE

#define ORT_ELEMENT(T) template TileFunctionOf<T> loop_function<T>(TileOp op);
ORT_ELEMENT(float)
ORT_TILE_TYPED(ORT_ELEMENT)
#undef ORT_ELEMENT

template <>
TileFunction tile_function<float>(TileOp op, int variant) {
  const TileFunction vectors = vector_function(op, variant);
  return vectors ? vectors : loop_function<float>(op);
}
template <>
TileFunctionOf<bool> tile_function<bool>(TileOp op, int /*variant*/) {
  return typed_function<bool>(op);
}

#define ORT_ELEMENT(T)                                             \
  template <>                                                      \
  TileFunctionOf<T> tile_function<T>(TileOp op, int /*variant*/) { \
    const TileFunctionOf<T> vectors = typed_function<T>(op);       \
    return vectors ? vectors : loop_function<T>(op);               \
  }
ORT_TILE_TYPED(ORT_ELEMENT)
#undef ORT_ELEMENT

}  // namespace ort::cpu
