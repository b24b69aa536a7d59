// The instructions of tile programs on integers, bools and doubles: loops over their meaning that
// the compiler makes vectors of, once for each vector target. tile_loops.cpp asks for them.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/tile/tile_typed_ops.cpp"
#include <algorithm>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

namespace scalar = tile::scalar;

constexpr int64_t kRun = 256;

// What an element is computed as: compilers make no vectors of bools.
template <class T>
using Cell = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class T>
const Cell<T>* cells(const T* from) {
  return reinterpret_cast<const Cell<T>*>(from);
}
template <class T>
Cell<T>* cells(T* from) {
  return reinterpret_cast<Cell<T>*>(from);
}

// A run of an operand; of one element, as many copies of it.
template <class T>
class Operand {
 public:
  Operand(const T* from, bool one) : from_(from), one_(one) {
    if (one) std::fill_n(copies_, kRun, *from);
  }
  const T* at(int64_t i) const { return one_ ? copies_ : from_ + i; }

 private:
  const T* from_;
  bool one_;
  T copies_[kRun];
};

template <class T, Cell<T> (*F)(Cell<T>)>
void unary(const TileArgsOf<T>& t) {
  const Operand<T> a(t.a, t.variant & 1);
  for (int64_t i = 0; i < t.count; i += kRun) {
    const int64_t count = std::min(kRun, t.count - i);
    const Cell<T>* x = cells(a.at(i));
    Cell<T>* to = cells(t.dst + i);
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) to[k] = F(x[k]);
  }
}

template <class T, Cell<T> (*F)(Cell<T>, Cell<T>)>
void binary(const TileArgsOf<T>& t) {
  const Operand<T> a(t.a, t.variant & 1), b(t.b, t.variant & 2);
  for (int64_t i = 0; i < t.count; i += kRun) {
    const int64_t count = std::min(kRun, t.count - i);
    const Cell<T>*x = cells(a.at(i)), *y = cells(b.at(i));
    Cell<T>* to = cells(t.dst + i);
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) to[k] = F(x[k], y[k]);
  }
}

template <class T, Cell<T> (*F)(Cell<T>, Cell<T>, Cell<T>)>
void ternary(const TileArgsOf<T>& t) {
  const Operand<T> a(t.a, t.variant & 1), b(t.b, t.variant & 2), c(t.c, t.variant & 4);
  for (int64_t i = 0; i < t.count; i += kRun) {
    const int64_t count = std::min(kRun, t.count - i);
    const Cell<T>*x = cells(a.at(i)), *y = cells(b.at(i)), *z = cells(c.at(i));
    Cell<T>* to = cells(t.dst + i);
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) to[k] = F(x[k], y[k], z[k]);
  }
}

#define ORT_UNARY(NAME) \
  case TileOp::NAME:    \
    return unary<T, scalar::NAME<Cell<T>>>;
#define ORT_BINARY(NAME) \
  case TileOp::NAME:     \
    return binary<T, scalar::NAME<Cell<T>>>;

template <class T>
TileFunctionOf<T> of_numbers(TileOp op) {
  switch (op) {
    ORT_UNARY(neg)
    ORT_UNARY(abs)
    ORT_UNARY(relu)
    ORT_UNARY(sign)
    ORT_UNARY(square)
    ORT_BINARY(add)
    ORT_BINARY(sub)
    ORT_BINARY(mul)
    case TileOp::mul_add:
      return ternary<T, scalar::mul_add<T>>;
    default:
      return nullptr;
  }
}

template <class T>
TileFunctionOf<T> of_integers(TileOp op) {
  switch (op) {
    ORT_UNARY(bit_not)
    ORT_TILE_BITS(ORT_BINARY)
    default:
      return of_numbers<T>(op);
  }
}

template <class T>
TileFunctionOf<T> of_floats(TileOp op) {
  switch (op) {
    ORT_UNARY(is_nan)
    ORT_UNARY(is_inf)
    ORT_BINARY(div)
    default:
      return of_numbers<T>(op);
  }
}

template <class T>
TileFunctionOf<T> choose(TileOp op) {
  switch (op) {
    ORT_UNARY(copy)
    ORT_UNARY(logical_not)
    ORT_TILE_TRUTHS(ORT_BINARY)
    case TileOp::where:
      return ternary<T, scalar::where<Cell<T>>>;
    default:
      if constexpr (std::is_same_v<T, bool>)
        return nullptr;
      else if constexpr (std::is_integral_v<T>)
        return of_integers<T>(op);
      else
        return of_floats<T>(op);
  }
}
#undef ORT_UNARY
#undef ORT_BINARY

#define ORT_CHOOSE(T)                       \
  TileFunctionOf<T> choose_##T(TileOp op) { \
    return choose<T>(op);                   \
  }
ORT_CHOOSE(bool)
ORT_TILE_TYPED(ORT_CHOOSE)
#undef ORT_CHOOSE

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
#define ORT_EXPORT(T)                              \
  HWY_EXPORT(choose_##T);                          \
  template <>                                      \
  TileFunctionOf<T> typed_function<T>(TileOp op) { \
    return HWY_DYNAMIC_DISPATCH(choose_##T)(op);   \
  }
ORT_EXPORT(bool)
ORT_TILE_TYPED(ORT_EXPORT)
#undef ORT_EXPORT
}  // namespace ort::cpu
#endif
