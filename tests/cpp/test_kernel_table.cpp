// The kernel table: what a dtype set ranges over, best first, refusals with their reasons, and the
// next kernel where one declines the sizes.
#include "providers/kernel_table.h"

#include <gtest/gtest.h>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "tests/cpp/cpu/cpu_run.h"

namespace ort {
namespace {

std::unique_ptr<Kernel> nothing(const Request& r) {
  return make_kernel(r.node().op, [](const Args&) {});
}

Value input(Graph& g, DType dtype, const Sizes& sizes) {
  return g.input(format("x{}", g.inputs().size()), Type::tensor(dtype, fixed(sizes)));
}

TEST(KernelTable, DtypesRangeOverTheOpsNumbers) {
  Graph g(default_ops());
  const Value x = input(g, DType::f32, {4, 3}), wide = input(g, DType::f64, {4, 3});
  const Value indices = input(g, DType::i64, {2});
  const auto of = [](Value v) -> const Node& { return *v.producer(); };
  EXPECT_TRUE(fits(kF32, of(g.emit1("Gather", {x, indices}))));  // indices are not meant
  EXPECT_EQ(fits(kF32, of(g.emit1("Gather", {wide, indices}))).reason,
            "input 0 is float64, expected float32");
  EXPECT_TRUE(fits(kF32, of(x < 1.0)));  // nor is the bool that comes out
  // An exponent is of a letter of its own: meant where it is floating.
  EXPECT_FALSE(fits(kF32, of(g.emit1("Pow", {x, input(g, DType::f64, {})}))));
  EXPECT_TRUE(fits(kF32, of(g.emit1("Pow", {x, input(g, DType::i32, {})}))));
  // A Cast has no letter T: all its operands are.
  EXPECT_FALSE(fits(kF32, of(cast(indices, DType::f32))));
  EXPECT_FALSE(fits(kF32, of(cast(x, DType::i64))));
  EXPECT_TRUE(fits(kPlain, of(cast(x, DType::i64))));
}

TEST(KernelTable, SetsReadAsText) {
  EXPECT_EQ(text(kF32), "float32");
  EXPECT_EQ(text(kF32 | kF64), "float32 or float64");
  EXPECT_EQ(text(kNumbers), "floating, integers or bool");
}

TEST(KernelTable, RefusalsNameEachKernel) {
  Graph g(default_ops());
  const Value x = input(g, DType::f64, {4, 3});
  KernelTable table("mine");
  table.op("Neg")
      .add("fast", kF32, nothing)
      .add("even", kF64, [](const Node&) { return Verdict::no("odd"); }, nothing);
  const Node& neg = *(-x).producer();
  EXPECT_EQ(table.can_run(neg).reason, "fast: input 0 is float64, expected float32; even: odd");
  EXPECT_EQ(table.can_run(*exp(x).producer()).reason, "mine has no kernel for Exp");
  EXPECT_THROW(table.prepare(neg, {}), Error);
}

TEST(KernelTable, TheNextTakesWhatOneDeclines) {
  Graph g(default_ops());
  const Node& neg = *(-input(g, DType::f32, {4, 3})).producer();
  KernelTable table("mine");
  table.op("Neg")
      .add("small", kF32,
           [](const Request& r) -> std::unique_ptr<Kernel> {
             if (element_count(r.sizes(0)) > 10) return nullptr;
             return make_kernel("small", [](const Args&) {});
           })
      .add("any", kF32, [](const Request&) { return make_kernel("any", [](const Args&) {}); });
  const auto name = [&](const Sizes& sizes) {
    Binding binding;
    binding.in = binding.out = {{DType::f32, sizes, true}};
    return table.prepare(neg, binding)->name();
  };
  EXPECT_EQ(name({5}), "small");
  EXPECT_EQ(name({11}), "any");
}

}  // namespace
}  // namespace ort
