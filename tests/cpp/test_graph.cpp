// Building, editing and copying graphs, and what emit refuses.
#include <gtest/gtest.h>

#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/verify.h"

namespace ort {
namespace {

Type matrix(const Dim& rows, const Dim& columns, DType dtype = DType::f32) {
  return Type::tensor(dtype, Dims{rows, columns});
}

struct GraphTest : testing::Test {
  Graph g{default_ops()};
  Value x = g.input("x", matrix(Dim::symbol("n"), 8)),
        w = g.input("w", matrix(8, 4), Role::parameter);

  // The message of the error that emitting this raises.
  std::string refusal(std::string_view op, std::vector<Value> in, Attrs attrs = {}) {
    try {
      g.emit(op, in, std::move(attrs));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(GraphTest, EmitInfersTypes) {
  const Value y = matmul(x, w);
  EXPECT_EQ(y.type().text(), "float32[n, 4]");
  EXPECT_EQ(y.producer()->op, "MatMul");
  ASSERT_EQ(x.uses().size(), 1u);
  EXPECT_EQ(x.uses()[0].node, y.producer());
  verify(g, "the test");
}

TEST_F(GraphTest, UsesGoFromEitherEndAndFromBetween) {
  std::vector<Node*> readers;
  for (int i = 0; i < 6; ++i) readers.push_back(relu(x).producer());
  const auto left = [&] {
    std::vector<Node*> nodes;
    for (const Use& use : x.uses()) nodes.push_back(use.node);
    return nodes;
  };
  using Nodes = std::vector<Node*>;
  g.erase(readers[0]);
  g.erase(readers[5]);
  g.erase(readers[3]);
  EXPECT_EQ(left(), (Nodes{readers[1], readers[2], readers[4]}));
  const Value y = g.input("y", matrix(Dim::symbol("n"), 8));
  g.replace_for(x, y, [&](const Node& node) { return &node == readers[2]; });
  EXPECT_EQ(left(), (Nodes{readers[1], readers[4]}));
  EXPECT_EQ(y.uses()[0].node, readers[2]);
  g.replace(x, y, "the test");
  EXPECT_TRUE(g.unused(x.id));
  EXPECT_EQ(y.uses().size(), 3u);
  verify(g, "uses");
}

TEST_F(GraphTest, EmitRefuses) {
  const Value count = g.input("i", matrix(8, 4, DType::i64));
  EXPECT_SAYS(refusal("Nothing", {x}), "unknown op 'Nothing'");
  EXPECT_SAYS(refusal("Relu", {x, w}), "[Relu] got 2 inputs, takes at most 1");
  EXPECT_SAYS(refusal("MatMul", {x}), "[MatMul] input 'b' is missing");
  EXPECT_SAYS(refusal("Relu", {x}, {{"alpha", 1.0}}), "[Relu] has no attribute 'alpha'");
  EXPECT_SAYS(refusal("Concat", {x}), "[Concat] attribute 'axis' is required");
  EXPECT_SAYS(refusal("Exp", {count}), "[Exp] input 'x' has dtype int64, which it does not take");
  EXPECT_SAYS(refusal("Add", {w, count}),
              "[Add] input 'b' has dtype int64, expected float32 (as 'a')");
  EXPECT_SAYS(refusal("MatMul", {w, w}), "inner sizes 4 and 8 differ");
  EXPECT_SAYS(refusal("Softmax", {x}, {{"axis", int64_t{2}}}),
              "axis 2 does not exist, the input has rank 2");
  EXPECT_SAYS(refusal("Softmax", {x}, {{"axis", 0.5}}), "attribute 'axis' is 0.5, expected an int");
  EXPECT_EQ(g.node_count(), 0u);
  verify(g, "refusals");
}

TEST_F(GraphTest, EmitRefusesAValueOfAnotherGraph) {
  Graph other(default_ops());
  const Value foreign = other.input("x", matrix(8, 4));
  EXPECT_SAYS(refusal("Relu", {foreign}), "[Relu] an input belongs to another graph");
}

TEST_F(GraphTest, ErrorsNameThePlaceInTheModel) {
  g.context.where = std::make_shared<Where>(Where{"encoder.3.norm", "model.py", 31});
  EXPECT_SAYS(refusal("MatMul", {w, w}), "at encoder.3.norm (model.py:31)");
}

TEST_F(GraphTest, ReplaceMovesUsesAndOutputs) {
  const Value y = relu(x), z = y + 1.0;
  g.output(y, "y");
  g.output(z, "z");
  const Value t = tanh(x);
  t.producer()->by.clear();
  g.move_before(t.producer(), y.producer());
  g.replace(y, t, "a rule");
  EXPECT_TRUE(g.unused(y.id));
  EXPECT_EQ(g.outputs()[0].value, t.id);
  EXPECT_EQ(z.producer()->input(0), t);
  EXPECT_EQ(t.producer()->by, "a rule");
  g.erase(y.producer());
  verify(g, "replace");
}

TEST_F(GraphTest, EraseRefusesWhatIsInUse) {
  const Value y = relu(x);
  g.output(y, "y");
  EXPECT_THROW(g.erase(y.producer()), Error);
}

TEST_F(GraphTest, CloneIsIndependentAndKeepsIds) {
  const Value y = relu(matmul(x, w));
  g.output(y, "y");
  const auto copy = g.clone();
  verify(*copy, "clone");
  EXPECT_EQ(print(*copy), print(g));
  const Value twin{copy.get(), y.id};
  EXPECT_EQ(twin.type(), y.type());
  EXPECT_NE(twin.producer(), y.producer());
  copy->output(tanh(twin), "more");
  EXPECT_EQ(g.outputs().size(), 1u);
  EXPECT_EQ(g.node_count() + 1, copy->node_count());
  verify(g, "clone");
}

TEST_F(GraphTest, InsertionGoesBeforeItsNodeAndRestores) {
  const Value y = relu(x);
  Value early;
  {
    Insertion here(g, y.producer(), "a rule");
    early = tanh(x);
  }
  EXPECT_EQ(early.producer()->next, y.producer());
  EXPECT_EQ(early.producer()->by, "a rule");
  EXPECT_EQ(tanh(x).producer()->by, "");
}

TEST_F(GraphTest, EnsureOutputAddsWhatNobodyHadAskedFor) {
  const Value y =
      g.emit("LayerNormalization",
             std::vector<Value>{x, g.constant(Tensor::empty(DType::f32, {8}))}, {}, 1)[0];
  const Value inv_std = g.ensure_output(y.producer(), 2);
  EXPECT_EQ(inv_std.type().text(), "float32[n, 1]");
  EXPECT_EQ(y.producer()->out[1], kNone);
  EXPECT_EQ(g.ensure_output(y.producer(), 2), inv_std);
  verify(g, "ensure_output");
}

TEST_F(GraphTest, UnusedInputsCanBeDropped) {
  relu(x);
  g.drop_input(w.id);
  EXPECT_EQ(g.inputs(), std::vector<ValueId>{x.id});
  EXPECT_THROW(g.drop_input(x.id), Error);
}

TEST_F(GraphTest, SizesStaySymbolicThroughShapeArithmetic) {
  const Value rows =
      g.emit1("Gather", {g.emit1("Shape", {x}), g.ints({0})}, {{"axis", int64_t{0}}});
  const Value asked = concat({rows * g.ints({8}), g.ints({1})}, 0);
  EXPECT_EQ(g.emit1("Reshape", {x, asked}).type().text(), "float32[8*n, 1]");
}

// As torch's exporter writes an expand, in which -1 keeps a size.
TEST_F(GraphTest, SizesAreChosenWhereNoNumbersTellOtherwise) {
  const Value one = g.input("one", matrix(1, 8));
  const auto expanded = [&](Value asked, Value lacks) {
    const Value chosen = g.emit1("Where", {lacks, g.ints({1, 1}), asked});
    return g.emit1("Expand", {one, chosen}).type().text();
  };
  const Value rows = g.size(Dim::symbol("n")), kept = g.ints({-1, -1});
  const Value asked = concat({reshape(rows, {1}), g.ints({-1})}, 0);
  EXPECT_EQ(expanded(asked, g.emit1("Equal", {asked, kept})), "float32[n, 8]");
  EXPECT_EQ(expanded(asked, g.emit1("Less", {asked, g.ints({0})})), "float32[n, 8]");
  const Value large = g.emit1("Greater", {asked, g.ints({3})});
  EXPECT_EQ(expanded(asked, large).rfind("float32[u", 0), 0u);
}

TEST_F(GraphTest, WhatOnlyARunTellsHasARankAllTheSame) {
  const Value three = g.input("three", Type::tensor(DType::i64, Dims{3}));
  const std::string wide = g.emit1("Expand", {w, three}).type().text();
  EXPECT_EQ(wide.substr(wide.find(',')), ", 8, 4]");
  const Value any = g.input("any", Type::tensor(DType::f32, std::nullopt));
  const Type copied = g.emit1("Reshape", {any, g.ints({0, 0, -1})}).type();
  EXPECT_EQ(copied.dims.value_or(Dims{}).size(), 3u);
}

}  // namespace
}  // namespace ort
