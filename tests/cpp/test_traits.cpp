// What an op's entry says: its cost, the dtype it computes in, its epilogue, its host ports.
#include <gtest/gtest.h>

#include <algorithm>

#include "csrc/graph/expand.h"
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/fuse.h"

namespace ort {
namespace {

double operations(const std::string& inputs, const std::string& call) {
  const auto graph =
      parse("graph (" + inputs + ")\n  %y = " + call + "\nreturn (\"y\" = %y)\n", default_ops());
  const Sized::SizeOf size = [](const Dim& dim) {
    return static_cast<double>(dim.evaluate({{"s0", 7}}));
  };
  const Node& node = *graph->value(graph->outputs()[0].value).producer();
  return node.schema->operations(Sized(node, size));
}

TEST(Traits, AProductCostsTwoOperationsATerm) {
  const std::string floats = "%a: float32[s0, 3] user, %b: float32[3, 5] user";
  EXPECT_EQ(operations(floats, "MatMul(%a, %b)"), 2 * 7 * 3 * 5);
  EXPECT_EQ(operations("%a: float32[3, s0] user, %b: float32[3, 5] user",
                       "ort::MatMul(%a, %b) {trans_a=1}"),
            2 * 7 * 3 * 5);
  EXPECT_EQ(operations("%a: float32[s0, 3] user, %w: float32[5, 3] user", "ort::Linear(%a, %w)"),
            2 * 7 * 3 * 5);
  EXPECT_EQ(operations(floats, "Einsum(%a, %b) {equation=\"ij,jk->ik\"}"), 2 * 7 * 3 * 5);
}

TEST(Traits, AConvolutionCostsItsFilterAnElement) {
  EXPECT_EQ(
      operations("%x: float32[s0, 4, 9] user, %w: float32[6, 2, 3] user", "Conv(%x, %w) {group=2}"),
      2 * (7 * 6 * 7) * (2 * 3));
  // each of [7, 6, 7] meets the [2, 3] of its filter
  EXPECT_EQ(operations("%x: float32[s0, 6, 7] user, %w: float32[6, 2, 3] user",
                       "ConvTranspose(%x, %w) {group=2}"),
            2 * (7 * 6 * 7) * (2 * 3));
}

TEST(Traits, AttentionCostsItsTwoProducts) {
  const std::string qkv =
      "%q: float32[2, 4, s0, 8] user, %k: float32[2, 4, 11, 8] user, %v: float32[2, 4, 11, 8] user";
  EXPECT_EQ(operations(qkv, "ort::Attention(%q, %k, %v) {scale=1}"),
            2 * 2.0 * (2 * 4) * 7 * 11 * 8);
}

TEST(Traits, ViewsAndConstantsCostNothing) {
  EXPECT_EQ(operations("%x: float32[s0] user", "Identity(%x)"), 0);
  EXPECT_LT(operations("%x: float32[s0] user", "Relu(%x)"),
            operations("%x: float32[s0] user", "Exp(%x)"));
}

DType computed_in(const std::string& dtype, const std::string& attrs) {
  const auto graph = parse("graph (%x: " + dtype + "[3, 8] user, %w: " + dtype +
                               "[8] user)\n  %y, %m = LayerNormalization(%x, %w) {" + attrs +
                               "}\nreturn (\"y\" = %y, \"m\" = %m)\n",
                           default_ops());
  return graph->value(graph->outputs()[1].value).dtype();
}

TEST(Traits, StatisticsHaveTheDtypeThatTheOpComputesIn) {
  EXPECT_EQ(computed_in("float16", ""), DType::f32);
  EXPECT_EQ(computed_in("float16", "stash_type=10"), DType::f16);
  EXPECT_EQ(computed_in("bfloat16", "stash_type=11"), DType::f64);
  EXPECT_EQ(computed_in("float64", ""), DType::f64);  // never less than the operands
  EXPECT_THROW(computed_in("float16", "stash_type=99"), Error);
}

TEST(Traits, ADefinitionRunsInTheDtypeThatTheOpComputesIn) {
  const auto graph = parse(R"(graph (%x: float16[3, 8] user)
  %y = Softmax(%x)
return ("y" = %y)
)",
                           default_ops());
  EXPECT_EQ(expand_all(*graph, [](const Node& node) { return !node.schema->is_elementwise(); }),
            1u);
  for (const Node* node : graph->order()) {
    const bool narrow = node->has_input(0) && node->input(0).dtype() == DType::f16;
    EXPECT_TRUE(!narrow || node->op == "Cast") << node->op;
  }
  EXPECT_EQ(graph->value(graph->outputs()[0].value).dtype(), DType::f16);
}

TEST(Traits, AnActivationJoinsAProductByItsEntryAlone) {
  OpSet ops;
  Family<OpSet>::add_all("ops", ops);
  ops.op("test::Rectified")
      .in("x", kFloating)
      .out("y")
      .elementwise()
      .epilogue(Epilogue::relu)
      .defined_as([](Value x) { return relu(x); });
  const auto graph =
      parse(R"(graph (%x: float32[s0, 8] user, %w: float32[4, 8] user, %b: float32[4] user)
  %l = ort::Linear(%x, %w, %b)
  %y = test::Rectified(%l)
return ("y" = %y)
)",
            ops);
  EXPECT_EQ(rewrite(*graph, fuse_rules(ops), {}), 1u);
  const Node& fused = *graph->value(graph->outputs()[0].value).producer();
  EXPECT_EQ(fused.qualified(), "ort::Linear");
  EXPECT_EQ(epilogue_of(fused.attrs), Epilogue::relu);
}

TEST(Traits, EveryEpilogueIsSomeOp) {
  Graph graph(default_ops());
  const Value x = graph.input("x", Type::tensor(DType::f32, Dims{4}));
  for (const char* name : {"relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "hard_swish",
                           "leaky_relu", "clip"}) {
    const Epilogue epilogue = epilogue_named(name);
    Attrs product{{"activation", std::string(name)}};
    if (epilogue == Epilogue::leaky_relu)
      product.set("activation_numbers", std::vector<double>{0.25});
    if (epilogue == Epilogue::clip)
      product.set("activation_numbers", std::vector<double>{-1.0, 2.0});
    const Node& node = *default_ops().activated(x, product).producer();
    bool joins = false;
    for (const auto& own : node.schema->epilogues())
      if (own.epilogue == epilogue) {
        joins = true;
        for (const auto& [key, value] : own.when)
          joins = joins && same_attr(*node.attrs.find(key), value);
      }
    EXPECT_TRUE(joins) << name;
  }
  EXPECT_EQ(default_ops().activated(x, {}), x);
  EXPECT_THROW(epilogue_named("mish"), Error);
}

TEST(Traits, HostPortsAreMarked) {
  const auto host = [](const char* op) {
    std::string names;
    const OpSchema& schema = default_ops().get(op);
    for (size_t i = 0; i < schema.inputs().size(); ++i)
      if (schema.is_host(i)) names += schema.inputs()[i].name + " ";
    return names;
  };
  EXPECT_EQ(host("Reshape"), "shape ");
  EXPECT_EQ(host("Slice"), "starts ends axes steps ");
  EXPECT_EQ(host("ort::Dropout"), "key ");
  EXPECT_EQ(host("Pad"), "pads axes ");
  EXPECT_EQ(host("Gather"), "");
  EXPECT_FALSE(default_ops().get("Add").is_host(7));
}

}  // namespace
}  // namespace ort
