// What a training plan keeps of a half model: its stash is halves, whatever kernels compute in.
#include <gtest/gtest.h>

#include "csrc/graph/expr.h"
#include "csrc/ops/ops.h"
#include "csrc/program/program.h"

namespace ort {
namespace {

constexpr int64_t kRows = 64, kCols = 32;

std::unique_ptr<Graph> mlp(DType dtype) {
  auto graph = std::make_unique<Graph>(default_ops());
  Value x = graph->input("x", Type::tensor(dtype, Dims{kRows, kCols}));
  for (int layer = 0; layer < 3; ++layer) {
    const Type weight = Type::tensor(dtype, Dims{kCols, kCols});
    const Value w = graph->input(format("w{}", layer), weight, Role::parameter);
    const Value b =
        graph->input(format("b{}", layer), Type::tensor(dtype, Dims{kCols}), Role::parameter);
    x = graph->emit1("ort::Linear", {x, w, b});
    x = graph->emit1("Gelu", {x});
  }
  graph->output(x, "y");
  return graph;
}

std::shared_ptr<const TrainingPlan> plan_of(DType dtype) {
  CompileOptions options;
  options.providers = {"cpu"};
  Program program(*mlp(dtype), options, {1, 2, 3, 4, 5, 6}, {0});
  std::vector<Sizes> sizes{{kRows, kCols}};
  for (int layer = 0; layer < 3; ++layer) sizes.insert(sizes.end(), {{kCols, kCols}, {kCols}});
  return program.plan(sizes);
}

TEST(HalfTraining, TheStashIsHalves) {
  const auto wide = plan_of(DType::f32);
  ASSERT_GT(wide->stash_bytes, 0u);
  for (const DType half : {DType::bf16, DType::f16})
    EXPECT_EQ(plan_of(half)->stash_bytes * 2, wide->stash_bytes);
}

}  // namespace
}  // namespace ort
