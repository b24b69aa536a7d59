// Comparisons, boolean and bit-wise logic: no gradient flows through them.
#include <limits>
#include <optional>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// What is said of two sizes: 1 or 0 where no numbers of their symbols tell otherwise.
using Decided = std::optional<bool> (*)(const Dim& a, const Dim& b);

std::optional<bool> greater(const Dim& a, const Dim& b) {
  if (lower_bound(a - b).value_or(0) >= 1) return true;
  if (lower_bound(b - a).value_or(-1) >= 0) return false;
  return std::nullopt;
}

std::optional<bool> equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (greater(a, b).value_or(false) || greater(b, a).value_or(false)) return false;
  return std::nullopt;
}

std::optional<bool> opposite(std::optional<bool> of) {
  return of ? std::optional(!*of) : of;
}

void comparison(OpSet& ops, std::string_view name, TypeSet types, int since, Decided decided) {
  ops.op(name)
      .in("a", types)
      .in("b", types)
      .out("y", kBool, "B")
      .since(since)
      .elementwise()
      .on_sizes([decided](const Dim& a, const Dim& b) {
        const std::optional<bool> known = decided(a, b);
        check(known.has_value(), "it depends on sizes");
        return Dim(*known);
      })
      .cheap()
      .not_differentiable();
}

void boolean(OpSet& ops, std::string_view name) {
  ops.op(name)
      .in("a", kBool)
      .in("b", kBool)
      .out("y")
      .since(7)
      .elementwise()
      .cheap()
      .commutative()
      .not_differentiable();
}

void bitwise(OpSet& ops, std::string_view name) {
  ops.op(name)
      .in("a", kIntegers)
      .in("b", kIntegers)
      .out("y")
      .since(18)
      .elementwise()
      .cheap()
      .commutative()
      .not_differentiable();
}

constexpr TypeSet kBits =
    kAny & ~(bit(DType::undefined) | bit(DType::string) | bit(DType::f6e2m3) | bit(DType::f6e3m2));

// The bytes of numbers as those of another dtype that has as many bits.
void register_bit_cast(OpSet& ops) {
  ops.op("BitCast")
      .in("x", kBits, "X")
      .out("y", kBits, "Y")
      .since(26)
      .attr_required("to")
      .shape([](InferContext& c) {
        const int64_t to = c.attrs().i("to");
        c.require(known_dtype(to) && (kBits & bit(static_cast<DType>(to))),
                  "attribute 'to' is {}, which is no dtype of numbers", to);
        const DType dtype = static_cast<DType>(to);
        c.require(bits_of(dtype) == bits_of(c.dtype()),
                  "x is {} of {} bits, 'to' is {} of {}, expected as many", c.dtype(),
                  bits_of(c.dtype()), dtype, bits_of(dtype));
        c.out(0, dtype, c.type(0).dims);
      })
      .not_differentiable();
}

}  // namespace

static void register_logic(OpSet& ops) {
  register_bit_cast(ops);
  comparison(ops, "Equal", kAny, 11, equal);
  comparison(ops, "Greater", kNumeric, 9, greater);
  comparison(ops, "GreaterOrEqual", kNumeric, 12,
             [](const Dim& a, const Dim& b) { return opposite(greater(b, a)); });
  comparison(ops, "Less", kNumeric, 9, [](const Dim& a, const Dim& b) { return greater(b, a); });
  comparison(ops, "LessOrEqual", kNumeric, 12,
             [](const Dim& a, const Dim& b) { return opposite(greater(a, b)); });
  boolean(ops, "And");
  boolean(ops, "Or");
  boolean(ops, "Xor");
  ops.op("Not").in("x", kBool).out("y").since(1).elementwise().cheap().not_differentiable();
  bitwise(ops, "BitwiseAnd");
  bitwise(ops, "BitwiseOr");
  bitwise(ops, "BitwiseXor");
  ops.op("BitwiseNot")
      .in("x", kIntegers)
      .out("y")
      .since(18)
      .elementwise()
      .cheap()
      .not_differentiable();
  ops.op("BitShift")
      .in("x", kIntegers)
      .in("bits", kIntegers)
      .out("y")
      .since(11)
      .attr_required("direction")
      .elementwise()
      .cheap()
      .not_differentiable();
  ops.op("IsNaN")
      .in("x", kFloating)
      .out("y", kBool, "B")
      .since(9)
      .elementwise()
      .cheap()
      .not_differentiable();
  ops.op("IsInf")
      .in("x", kFloating)
      .out("y", kBool, "B")
      .since(10)
      .attr("detect_negative", int64_t{1})
      .attr("detect_positive", int64_t{1})
      .elementwise()
      .cheap()
      .defined_as([](const OpCall& c) {
        const bool negative = c.attrs().i("detect_negative") != 0;
        const bool positive = c.attrs().i("detect_positive") != 0;
        const double infinity = std::numeric_limits<double>::infinity();
        const Value x = c.x();
        if (negative && positive) return equal(abs(x), number(infinity, x));
        if (!negative && !positive) return x > infinity;
        return equal(x, number(positive ? infinity : -infinity, x));
      })
      .not_differentiable();
}

const Family<OpSet> kLogicOps("ops", "logic", register_logic);

}  // namespace ort
