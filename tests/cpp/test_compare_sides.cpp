// Checked mode: a rule whose sides differ is an error that names it, a right one passes, and what
// cannot be compared says why.
#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/ops/ops.h"
#include "csrc/passes/compare_sides.h"
#include "csrc/passes/rules/rules.h"
#include "csrc/program/evaluator.h"

namespace ort {
namespace {

Type floats(Dims dims) {
  return Type::tensor(DType::f32, std::move(dims));
}

class CompareSides : public ::testing::Test {
 protected:
  size_t apply(Graph& graph, const Rule& rule) {
    return rewrite(graph, {rule}, {nullptr, nullptr, &evaluator_});
  }
  std::string error(Graph& graph, const Rule& rule) {
    try {
      apply(graph, rule);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  ProviderEvaluator evaluator_{*find_provider("reference")};
};

void expect_in(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

Rule named(const Rules& rules, std::string_view name) {
  return *std::find_if(rules.begin(), rules.end(),
                       [&](const Rule& rule) { return rule.name() == name; });
}

Rule double_is(std::string name, std::function<Value(const Match&)> replacement) {
  return rule(std::move(name))
      .match([](Pattern& p) { return p["x"] + p["x"]; })
      .rewrite(std::move(replacement));
}

TEST_F(CompareSides, AWrongValueNamesRuleAndNodes) {
  Graph g(default_ops());
  g.context.where = std::make_shared<Where>(Where{"encoder.0", "model.py", 31});
  const Value x = g.input("x", floats({Dim::symbol("s0"), 4}));
  g.output(relu(x + x), "y");
  const Rule wrong = double_is("triple", [](const Match& m) { return 3.0 * m["x"]; });
  const std::string first = error(g, wrong);
  expect_in(first, {"rule 'triple' changes values: element 0 of float32[6, 4] is ",
                    "it matched Add node %", "at encoder.0"});
  EXPECT_EQ(error(g, wrong), first) << "a rule that failed is compared again";
}

TEST_F(CompareSides, ARightRuleIsApplied) {
  Graph g(default_ops());
  const Value x = g.input("x", floats({Dim::symbol("s0"), 4}));
  g.output(relu(x + x), "y");
  EXPECT_EQ(apply(g, double_is("twice", [](const Match& m) { return 2.0 * m["x"]; })), 1u);
}

TEST_F(CompareSides, AnotherShapeIsDeclined) {
  Graph g(default_ops());
  const Dim s = Dim::symbol("s0");
  const Value x = g.input("x", floats({s, s + 2}));
  g.output(x + x, "y");
  const Rule wrong =
      double_is("turned", [](const Match& m) { return transpose(m["x"] + m["x"] * 1.0, {1, 0}); });
  EXPECT_EQ(apply(g, wrong), 0u);
}

TEST_F(CompareSides, AWrongAttributeIsSeenThoughTheTypesAreKnown) {
  const Rule clip =
      rule("roll")
          .match([](Pattern& p) { return p.named("t", p.op("Transpose", {p["x"]})); })
          .when([](const Match& m) { return require(m.attrs("t").ints("perm")[0] != 0, "done"); })
          .rewrite([](const Match& m) { return transpose(m["x"], {0, 1, 2}); });
  Graph right(default_ops()), wrong(default_ops());
  for (Graph* g : {&right, &wrong}) {
    const Value x = g->input("x", floats({3, 3, 3}));
    g->output(
        transpose(x, g == &wrong ? std::vector<int64_t>{2, 1, 0} : std::vector<int64_t>{0, 1, 2}),
        "y");
  }
  EXPECT_EQ(error(right, clip), "");
  expect_in(error(wrong, clip), {"rule 'roll' changes values"});
}

TEST_F(CompareSides, NodesWithoutAKernelAreExpanded) {
  Graph g(default_ops());
  const Value x = g.input("x", floats({Dim::symbol("s0"), 8})), w = g.input("w", floats({6, 8}));
  const Value b = g.input("b", floats({6}));
  g.output(g.emit1("ort::Linear", {x, w, b}), "y");
  const auto linear = [](std::string name, bool bias) {
    return rule(std::move(name))
        .match([](Pattern& p) { return p.op("ort::Linear", {p["x"], p["w"], p["b"]}); })
        .rewrite([=](const Match& m) {
          const Value product = matmul(m["x"], transpose(m["w"], {1, 0}));
          return bias ? product + m["b"] : product;
        });
  };
  expect_in(error(g, linear("no bias", false)), {"rule 'no bias' changes values"});
  EXPECT_EQ(error(g, linear("with bias", true)), "");
}

TEST_F(CompareSides, ASizeOfSymbolsThatIsZeroCopiesNoAxis) {
  Graph g(default_ops());
  const Dim n = Dim::symbol("n"), small = floor_div(n, 32);  // 0 for the size that n is given
  const Value x = g.input("x", floats({n, small * 4}));
  g.output(reshape(reshape(x, {n, small, 4}), {n, 2, 2, small}), "y");
  EXPECT_EQ(apply(g, named(rules::movement_rules(), "reshape_of_reshape")), 1u);
}

TEST_F(CompareSides, WhatCannotBeComparedSaysWhy) {
  Graph g(default_ops());
  const Value x = g.input("x", floats({1000, 1000}));
  const Value y = x + x;
  g.output(y, "y");
  const Rule big = double_is("big", [](const Match& m) { return 3.0 * m["x"]; });
  Match match;
  ASSERT_TRUE(big.find(*y.producer(), match));
  const auto first_new = static_cast<ValueId>(g.value_count());
  const Verdict verdict = compare_sides(big, match, big.apply(match), first_new, evaluator_);
  EXPECT_FALSE(verdict);
  EXPECT_EQ(verdict.reason, "an input is large");
}

TEST_F(CompareSides, TheDeepestNearMissIsKept) {
  Graph g(default_ops());
  const Value x = g.input("x", floats({4}));
  g.output(sqrt(x) * 3.0, "shallow");
  g.output(sqrt(exp(x)) * 2.0, "deep");
  const Rule watched = rule("watched")
                           .match([](Pattern& p) { return sqrt(exp(p["x"])) * p["y"]; })
                           .when([](const Match&) { return Verdict::no("it never holds"); })
                           .rewrite([](const Match& m) { return m["x"]; });
  setenv("ORTMODULE_NEAR", "watched", 1);
  ::testing::internal::CaptureStderr();
  apply(g, watched);
  const std::string text = ::testing::internal::GetCapturedStderr();
  unsetenv("ORTMODULE_NEAR");
  expect_in(text, {"ortmodule: near miss of watched at Mul node %", "it never holds",
                   "matched Exp node %"});
  EXPECT_EQ(text.find("near miss"), text.rfind("near miss")) << "one line a run";
}

}  // namespace
}  // namespace ort
