// The order of the steps: effects happen in program order, whatever becomes ready first.
#include "csrc/plan/schedule.h"

#include <gtest/gtest.h>

#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "gradient_graph/segments.h"

namespace ort {
namespace {

// %1 and %4 are one region, which is ready when %4's place has come; %2 waits for it, %3 does not.
constexpr const char* kText = R"(graph (%x: float32[4] user)
  %1 = Relu(%x)
  %2 = aten::rand_like(%1) {schema="aten::rand_like", types=["float32[4]"], effect="EFFECT"}
  %3 = aten::rand_like(%x) {schema="aten::rand_like", types=["float32[4]"], effect="EFFECT"}
  %4 = Exp(%1)
return ("a" = %2, "b" = %3, "c" = %4)
)";

std::unique_ptr<Graph> graph_with(const char* effect) {
  std::string text = kText;
  for (size_t at; (at = text.find("EFFECT")) != std::string::npos;) text.replace(at, 6, effect);
  return parse(text, default_ops());
}

std::vector<size_t> order_of(const Graph& graph) {
  const std::vector<Node*> nodes = graph.order();
  const auto claim = [&](std::vector<size_t> positions) {
    Claim result{nullptr, {}};
    for (const size_t i : positions) result.region.nodes.push_back(nodes[i]);
    return result;
  };
  return schedule(graph, {claim({0, 3}), claim({1}), claim({2})});
}

TEST(Schedule, WithoutEffectsTheFirstReadyRuns) {
  EXPECT_EQ(order_of(*graph_with("none")), (std::vector<size_t>{2, 0, 1}));
}

TEST(Schedule, EffectsKeepProgramOrder) {
  EXPECT_EQ(order_of(*graph_with("random")), (std::vector<size_t>{0, 1, 2}));
}

TEST(Schedule, EffectsAreForwardThoughOnlyTheBackwardReadsThem) {
  const auto graph = parse(R"(graph (%x: float32[4] user)
  %1 = aten::rand_like(%x) {schema="aten::rand_like", types=["float32[4]"], effect="random"}
  = aten::check(%x) {schema="aten::check", types=[], effect="check"}
  %2 = Exp(%x)
  %3 = Mul(%2, %1)
return ("y" = %2, "d_x" = %3)
)",
                           default_ops());
  const std::vector<size_t> bytes{16};
  grad::assign_segments(*graph, 1, 0, bytes);
  std::vector<int> segments;
  for (const Node* node : graph->order()) segments.push_back(node->segment);
  EXPECT_EQ(segments, (std::vector<int>{-1, -1, -1, 0}));
}

// A claim for each node.
std::string order_of(const std::string& text) {
  const auto graph = parse(text, default_ops());
  std::vector<Claim> claims;
  for (Node* node : graph->order()) claims.push_back({nullptr, region_of(*node)});
  std::string names;
  for (const size_t i : schedule(*graph, claims)) names += claims[i].region.nodes[0]->op + " ";
  return names;
}

TEST(Schedule, ACollectiveStartsFirstOfWhatIsReadyAndIsWaitedForLast) {
  EXPECT_EQ(order_of(R"(graph (%x: float32[4] user, %z: float32[4] user)
  %1 = Neg(%z)
  %2 = Exp(%1)
  %3, %4 = ort::AllReduce(%x) {group="0", size=2}
  %5 = ort::Wait(%3, %4)
  %6 = Relu(%z)
  %7 = Add(%5, %6)
  %8 = Sigmoid(%2)
return ("a" = %7, "b" = %8)
)"),
            "AllReduce Neg Exp Relu Wait Add Sigmoid ");
}

TEST(Schedule, CollectivesKeepTheirOrder) {
  EXPECT_EQ(order_of(R"(graph (%x: float32[4] user, %z: float32[4] user)
  %1 = Neg(%z)
  %2, %3 = ort::AllReduce(%1) {group="0", size=2}
  %4, %5 = ort::Broadcast(%x) {group="0", size=2}
  %6 = ort::Wait(%4, %5)
  %7, %8 = ort::AllGather(%6) {group="0", size=2}
  %9 = ort::Wait(%2, %3)
  %10 = ort::Wait(%7, %8)
  %11 = Exp(%z)
return ("a" = %9, "b" = %10, "c" = %11)
)"),
            "Neg AllReduce Broadcast Wait AllGather Exp Wait Wait ");
}

}  // namespace
}  // namespace ort
