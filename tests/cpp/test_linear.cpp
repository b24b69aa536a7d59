// Work that grows with the graph and not with its square: counted on graphs of 1k, 4k and 16k
// nodes.
#include <gtest/gtest.h>

#include "csrc/ops/ops.h"
#include "csrc/passes/regions.h"
#include "gradient_graph/differentiate.h"
#include "gradient_graph/min_cut.h"
#include "gradient_graph/segments.h"
#include "gradient_graph/stash.h"

namespace ort {
namespace {

using Build = std::function<Value(Value x, Value shared, int nodes)>;

Value chain(Value x, Value, int nodes) {
  for (int i = 0; i < nodes; ++i) x = tanh(x);
  return x;
}

Value chain_with_shared(Value x, Value shared, int nodes) {
  for (int i = 0; i < nodes / 2; ++i) x = tanh(x * shared);
  return x;
}

// All read one value; pairs of them are summed as a tree.
Value fan(Value x, Value, int nodes) {
  std::vector<Value> level;
  for (int i = 0; i < nodes / 2; ++i) level.push_back(tanh(x));
  while (level.size() > 1) {
    std::vector<Value> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

// Layers that read one mask and the stream before them, products between.
Value layers(Value x, Value shared, int nodes) {
  for (int i = 0; i < nodes / 4; ++i) x = x + tanh(matmul(x, shared) * shared);
  return x;
}

Value views(Value x, Value, int nodes) {
  for (int i = 0; i < nodes / 2; ++i) x = unary("Identity", x);
  Value sum = x;
  for (int i = 0; i < nodes / 4; ++i) sum = sum + tanh(x);
  return sum;
}

struct Case {
  const char* name;
  Build build;
};

class Linear : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Graph> graph(int nodes) const {
    auto g = std::make_unique<Graph>(default_ops());
    const Type type = Type::tensor(DType::f32, Dims{8, 8});
    const Value x = g->input("x", type), shared = g->input("shared", type);
    g->output(GetParam().build(x, shared, nodes), "y");
    return g;
  }

  // Steps a node at 16k are no more than at 1k, but for a constant or a logarithm.
  static void expect_linear(const std::function<size_t(int nodes)>& steps) {
    const double small = static_cast<double>(steps(1000)) / 1000;
    EXPECT_LE(static_cast<double>(steps(4000)) / 4000, 2 * small + 10);
    EXPECT_LE(static_cast<double>(steps(16000)) / 16000, 2 * small + 10);
  }
};

bool is_elementwise(const Node& node) {
  return node.schema->is_elementwise();
}

TEST_P(Linear, Regions) {
  expect_linear([&](int nodes) {
    const auto g = graph(nodes);
    size_t steps = 0;
    grow_regions(*g, is_elementwise, [](std::span<Node* const>) { return true; }, {256, &steps});
    EXPECT_GE(steps, static_cast<size_t>(nodes) / 4);
    return steps;
  });
}

TEST_P(Linear, RegionsThatStaySmall) {
  expect_linear([&](int nodes) {
    const auto g = graph(nodes);
    size_t steps = 0;
    grow_regions(*g, is_elementwise, [](std::span<Node* const> nodes) { return nodes.size() <= 3; },
                 {256, &steps});
    return steps;
  });
}

TEST_P(Linear, DifferentiateAndStash) {
  for (const bool checkpoint : {false, true})
    expect_linear([&](int nodes) {
      const auto g = graph(nodes);
      const size_t before = g->node_count();
      const std::vector<size_t> outputs{0};
      const std::vector<ValueId> inputs = g->inputs();  // it adds to them
      grad::differentiate(*g, outputs, inputs);
      EXPECT_LE(g->node_count(), 20 * before);
      const size_t gradients = g->outputs().size() - 1;
      const std::vector<size_t> bytes(gradients, 256);
      grad::assign_segments(*g, 1, 0, bytes);
      for (Node* node : g->order()) node->recompute = checkpoint && node->segment < 0;
      size_t steps = 0;
      grad::StashOptions options;
      options.steps = &steps;
      grad::choose_stash(*g, options);
      return steps;
    });
}

INSTANTIATE_TEST_SUITE_P(Graphs, Linear,
                         ::testing::Values(Case{"chain", chain},
                                           Case{"chain_with_shared", chain_with_shared},
                                           Case{"fan", fan}, Case{"layers", layers},
                                           Case{"views", views}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ort
