// Which nodes get casts, which casts between two of them go, and what is told of it.
#include "csrc/plan/wrap_in_casts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/verify.h"

namespace ort {
namespace {

// Runs Tanh in float32, Neg in every dtype, and casts.
class Narrow final : public Provider {
 public:
  std::string_view name() const override { return "narrow"; }
  Verdict can_run(const Node& node) const override {
    if (node.is("Cast") || node.is("Neg")) return Verdict::yes();
    return require(node.input(0).dtype() == DType::f32, "input 0 is {}", node.input(0).dtype());
  }
  Prepared prepare(const Region&, const Binding&) const override { fail("nothing runs here"); }
};

class Casts : public ::testing::Test {
 protected:
  std::vector<Refusal> wrap() {
    const std::vector<Refusal> refusals = wrap_in_casts(graph, providers);
    verify(graph, "wrap_in_casts");
    return refusals;
  }
  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const Node* node : graph.order())
      names.push_back(node->op == "Cast" ? format("to {}", node->output().dtype()) : node->op);
    return names;
  }
  using Ops = std::vector<std::string>;

  Graph graph{default_ops()};
  Narrow narrow;
  std::vector<const Provider*> providers{&narrow};
  Value x = graph.input("x", Type::tensor(DType::bf16, Dims{Dim::symbol("s"), 4}));
};

TEST_F(Casts, StandAroundANodeThatOnlyFloat32Runs) {
  graph.context.segment = 2;
  graph.context.recompute = true;
  graph.context.where = std::make_shared<Where>(Where{"encoder", "model.py", 3});
  graph.output(tanh(x), "y");
  const std::vector<Refusal> refusals = wrap();
  EXPECT_EQ(ops(), (Ops{"to float32", "Tanh", "to bfloat16"}));
  for (const Node* node : graph.order()) {
    EXPECT_EQ(node->segment, 2);
    EXPECT_TRUE(node->recompute);
    EXPECT_EQ(node->where->module, "encoder");
  }
  EXPECT_EQ(graph.value(graph.outputs()[0].value).dtype(), DType::bf16);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].op, "Tanh");
  EXPECT_EQ(refusals[0].provider, "narrow");
  EXPECT_EQ(refusals[0].reason, "input 0 is bfloat16");
}

TEST_F(Casts, OfANodeThatIsRunAsItIsThereAreNone) {
  graph.output(-x, "y");
  EXPECT_TRUE(wrap().empty());
  EXPECT_EQ(ops(), (Ops{"Neg"}));
}

TEST_F(Casts, BetweenTwoOfThemThereAreNone) {
  graph.output(tanh(tanh(x)), "y");
  EXPECT_EQ(wrap().size(), 2u);
  EXPECT_EQ(ops(), (Ops{"to float32", "Tanh", "Tanh", "to bfloat16"}));
}

TEST_F(Casts, BetweenTwoOfThemStayWhereAnotherReadsTheHalf) {
  const Value h = tanh(x);
  graph.output(tanh(h), "y");
  graph.output(-h, "z");
  wrap();
  EXPECT_EQ(ops(),
            (Ops{"to float32", "Tanh", "to bfloat16", "to float32", "Tanh", "to bfloat16", "Neg"}));
}

TEST_F(Casts, BetweenTwoOfThemStayWhereTheHalfIsGivenOut) {
  const Value h = tanh(x);
  graph.output(tanh(h), "y");
  graph.output(h, "z");
  wrap();
  EXPECT_EQ(ops(), (Ops{"to float32", "Tanh", "to bfloat16", "to float32", "Tanh", "to bfloat16"}));
}

// What the backward reads is kept as a half.
TEST_F(Casts, BetweenTwoSegmentsStay) {
  const Value h = tanh(x);
  graph.context.segment = 0;
  graph.output(tanh(h), "y");
  wrap();
  EXPECT_EQ(ops(), (Ops{"to float32", "Tanh", "to bfloat16", "to float32", "Tanh", "to bfloat16"}));
  EXPECT_EQ(graph.order()[3]->segment, 0);
}

TEST_F(Casts, AValueIsCastOnceForItsReadersInASegment) {
  const Value a = tanh(x), b = tanh(x);
  graph.context.segment = 0;
  graph.output(a, "a");
  graph.output(b, "b");
  graph.output(tanh(x), "c");
  wrap();
  const Ops made = ops();
  EXPECT_EQ(std::count(made.begin(), made.end(), "to float32"), 2);
}

TEST_F(Casts, ANumberStaysAConstant) {
  const Value bound = graph.scalar(0.5, DType::bf16);
  graph.output(graph.emit1("Max", {x, bound}), "y");
  wrap();
  const Node& max = *graph.value(graph.outputs()[0].value).producer()->input(0).producer();
  ASSERT_EQ(max.op, "Max");
  EXPECT_EQ(scalar_of(max.input(1)), 0.5);
  EXPECT_EQ(max.input(1).dtype(), DType::f32);
}

// The provider that comes first wins, though it needs casts and a later one does not.
TEST_F(Casts, TheFirstProviderIsServed) {
  const Provider* reference = find_provider("reference");
  ASSERT_NE(reference, nullptr);
  providers = {reference, &narrow};
  graph.output(tanh(x), "y");
  EXPECT_TRUE(wrap().empty());
  providers = {&narrow, reference};
  EXPECT_EQ(wrap().size(), 1u);
  EXPECT_EQ(ops(), (Ops{"to float32", "Tanh", "to bfloat16"}));
}

}  // namespace
}  // namespace ort
