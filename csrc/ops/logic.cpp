// Comparisons, boolean and bit-wise logic: no gradient flows through them.
#include <limits>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

void comparison(OpSet& ops, std::string_view name, TypeSet types, int since) {
  ops.op(name)
      .in("a", types)
      .in("b", types)
      .out("y", kBool, "B")
      .since(since)
      .elementwise()
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

}  // namespace

static void register_logic(OpSet& ops) {
  comparison(ops, "Equal", kAny, 11);
  comparison(ops, "Greater", kNumeric, 9);
  comparison(ops, "GreaterOrEqual", kNumeric, 12);
  comparison(ops, "Less", kNumeric, 9);
  comparison(ops, "LessOrEqual", kNumeric, 12);
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

const Family<OpSet> kFamily("ops", "logic", register_logic);

}  // namespace ort
