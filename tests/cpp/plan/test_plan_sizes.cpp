// Sizes that no plan can have: the error names op, size and module.
#include <gtest/gtest.h>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "csrc/plan/lowered_graph.h"

namespace ort {
namespace {

std::string layout_error(std::unique_ptr<Graph> graph) {
  const Provider* providers[] = {find_provider("cpu"), find_provider("reference")};
  const size_t outputs = graph->outputs().size();
  try {
    lower_graph(std::move(graph), {outputs}, providers);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::unique_ptr<Graph> graph_at(const std::string& module) {
  auto graph = std::make_unique<Graph>(default_ops());
  graph->context.where = std::make_shared<Where>(Where{module, "model.py", 7});
  return graph;
}

Type floats(std::optional<Dims> dims) {
  return Type::tensor(DType::f32, std::move(dims));
}

TEST(PlanSizes, ASizeOfARunNamesTheNodeThatMakesIt) {
  auto graph = graph_at("head.pick");
  const Value x = graph->input("x", floats(Dims{Dim::symbol("s0"), 4}));
  graph->output(graph->emit1("NonZero", {relu(x)}) + graph->ints({1}), "y");
  const std::string error = layout_error(std::move(graph));
  EXPECT_EQ(error.rfind("[NonZero] size ", 0), 0u) << error;
  EXPECT_NE(error.find(" of its result int64[2, "), std::string::npos) << error;
  EXPECT_NE(error.find(" is known only at run time; node %"), std::string::npos) << error;
  EXPECT_NE(error.find(" at head.pick (model.py:7)"), std::string::npos) << error;
}

TEST(PlanSizes, ARankOfARunNamesTheNode) {
  auto graph = graph_at("head.view");
  const Value x = graph->input("x", floats(Dims{6}));
  const Value shape = graph->input("shape", Type::tensor(DType::i64, Dims{Dim::symbol("n")}));
  graph->output(graph->emit1("Reshape", {x, shape}), "y");
  const std::string error = layout_error(std::move(graph));
  EXPECT_EQ(
      error.rfind("[Reshape] the rank of its result float32[..] is known only at run time", 0), 0u)
      << error;
  EXPECT_NE(error.find(" at head.view (model.py:7)"), std::string::npos) << error;
}

TEST(PlanSizes, AnInputNeedsItsRank) {
  auto graph = graph_at("");
  graph->output(relu(graph->input("x", floats(std::nullopt))), "y");
  EXPECT_EQ(layout_error(std::move(graph)), "input 'x' is float32[..]: a plan needs its rank");
}

TEST(PlanSizes, SizesOfInputsAreKnown) {
  auto graph = graph_at("");
  const Dim s = Dim::symbol("s0");
  const Value x = graph->input("x", floats(Dims{s, s + 2}));
  graph->output(reshape(x, {s * (s + 2)}), "y");
  EXPECT_EQ(layout_error(std::move(graph)), "");
}

}  // namespace
}  // namespace ort
