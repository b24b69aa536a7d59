// Effects by class, with ops of a set of its own: their order, their segments, and that no pass
// removes, merges or repeats them.
#include <gtest/gtest.h>

#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/cse.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/regions.h"
#include "csrc/plan/schedule.h"
#include "gradient_graph/segments.h"
#include "gradient_graph/stash.h"

namespace ort {
namespace {

// test::<effect>(x, object) passes x on; test::Start and test::Wait are a collective's two nodes.
const OpSet& ops() {
  static const OpSet* set = [] {
    auto* ops = new OpSet();
    Family<OpSet>::add_all("ops", *ops);
    for (const char* name : {"random", "check", "state_write", "collective", "python"})
      ops->op(std::string("test::") + name)
          .in("x", kFloating)
          .in_optional("object", kAny, "O")
          .out("y")
          .effect(effect_named(name))
          .shape(like(0));
    ops->op("test::Plain").in("x", kFloating).out("y").shape(like(0));
    ops->op("test::Start")
        .in("x", kFloating)
        .out("token")
        .effect(Effect::collective)
        .shape([](InferContext& c) { c.out_opaque(0); });
    ops->op("test::Wait").in("token").in("like", kFloating, "L").out("y").shape(like(1));
    ops->op("test::Users")
        .in("dy", kFloating)
        .out("dx")
        .shape(like(0))
        .users_backward([](const Node&) { return true; });
    return ops;
  }();
  return *set;
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  return text;
}

// A region for each list of the graph's nodes.
std::vector<Claim> claims_of(const Graph& graph, const std::vector<std::vector<size_t>>& regions) {
  const std::vector<Node*> nodes = graph.order();
  std::vector<Claim> claims;
  for (const auto& positions : regions) {
    Claim& claim = claims.emplace_back();
    for (const size_t i : positions) claim.region.nodes.push_back(nodes[i]);
  }
  return claims;
}

// %1 and %4 are one region, which is ready when %4's place has come; %2 waits for it, and %3 only
// where effects say so.
std::vector<size_t> order_of(const std::string& first, const std::string& second) {
  const std::string text = with(with(R"(graph (%x: float32[4] user, %s: float32[4] buffer)
  %1 = Exp(%x)
  %2 = test::FIRST
  %3 = test::SECOND
  %4 = Exp(%1)
return ("a" = %2, "b" = %3, "c" = %4)
)",
                                     "FIRST", first),
                                "SECOND", second);
  const auto graph = parse(text, ops());
  return schedule(*graph, claims_of(*graph, {{0, 3}, {1}, {2}}));
}

const std::vector<size_t> kProgramOrder{0, 1, 2}, kReadyFirst{2, 0, 1};

TEST(Effects, KeepOrderWithinAClass) {
  for (const char* name : {"random", "check", "state_write", "collective", "python"})
    EXPECT_EQ(order_of(name + std::string("(%1)"), name + std::string("(%x)")), kProgramOrder);
}

TEST(Effects, OfTwoClassesRunAsTheyAreReady) {
  EXPECT_EQ(order_of("random(%1)", "check(%x)"), kReadyFirst);
  EXPECT_EQ(order_of("state_write(%1)", "collective(%x)"), kReadyFirst);
}

TEST(Effects, OfTwoClassesKeepOrderOnOneObject) {
  EXPECT_EQ(order_of("state_write(%1, %s)", "collective(%s)"), kProgramOrder);
  EXPECT_EQ(order_of("collective(%1, %s)", "check(%x, %s)"), kProgramOrder);
}

TEST(Effects, PythonIsOrderedAgainstEveryClass) {
  for (const char* name : {"random", "check", "state_write", "collective"}) {
    EXPECT_EQ(order_of(name + std::string("(%1)"), "python(%x)"), kProgramOrder);
    EXPECT_EQ(order_of("python(%1)", name + std::string("(%x)")), kProgramOrder);
  }
}

TEST(Effects, AViewIsItsObject) {
  const auto graph = parse(R"(graph (%x: float32[4] user, %s: float32[4] buffer)
  %1 = Exp(%x)
  %v = Identity(%s)
  %2 = test::state_write(%1, %v)
  %3 = test::collective(%s)
  %4 = Exp(%1)
return ("a" = %2, "b" = %3, "c" = %4)
)",
                           ops());
  EXPECT_EQ(schedule(*graph, claims_of(*graph, {{0, 4}, {2}, {3}})), kProgramOrder);
}

// %1 and %4 are one region where no effect lies between.
TEST(Effects, ARegionIsConvexAcrossThem) {
  const auto sizes_of = [](const char* last) {
    const auto graph = parse(with(R"(graph (%x: float32[4] user)
  %1 = Exp(%x)
  %2 = test::python(%1)
  %3 = test::LAST(%x)
  %4 = Mul(%1, %3)
return ("a" = %2, "b" = %4)
)",
                                  "LAST", last),
                             ops());
    const auto tiled = [](const Node& node) { return !node.schema->has_effect(node); };
    std::vector<Claim> claims;
    std::vector<size_t> sizes;
    for (std::vector<Node*>& nodes :
         grow_regions(*graph, tiled, [](std::span<Node* const>) { return true; })) {
      sizes.push_back(nodes.size());
      claims.push_back({nullptr, {std::move(nodes), {}, {}, ""}});
    }
    for (Node* node : graph->order())
      if (!tiled(*node)) claims.push_back({nullptr, region_of(*node)});
    EXPECT_EQ(schedule(*graph, claims).size(), claims.size());
    return sizes;
  };
  EXPECT_EQ(sizes_of("Plain"), (std::vector<size_t>{3}));
  for (const char* name : {"random", "check", "state_write", "collective", "python"})
    EXPECT_EQ(sizes_of(name), (std::vector<size_t>{1, 1})) << name;
}

std::vector<int> segments_of(const std::string& text, size_t n_forward, size_t gradients,
                             size_t segment_bytes = 0) {
  const auto graph = parse(text, ops());
  const std::vector<size_t> bytes(gradients, 16);
  grad::assign_segments(*graph, n_forward, segment_bytes, bytes);
  std::vector<int> segments;
  for (const Node* node : graph->order()) segments.push_back(node->segment);
  return segments;
}

TEST(Effects, ACollectiveStartsInTheSegmentOfWhatItReads) {
  EXPECT_EQ(segments_of(R"(graph (%x: float32[4] user, %dy: float32[4] gradient)
  %y = Exp(%x)
  %g = Mul(%y, %dy)
  %t = test::Start(%g)
  %a = Neg(%g)
  %b = Neg(%a)
  %w = test::Wait(%t, %b)
return ("y" = %y, "d_a" = %a, "d_b" = %w)
)",
                        1, 2),
            (std::vector<int>{-1, 0, 0, 0, 1, 1}));
}

TEST(Effects, WhatOnlyACollectiveReadsRunsAsEarly) {
  EXPECT_EQ(segments_of(R"(graph (%x: float32[4] user, %dy: float32[4] gradient)
  %y = Exp(%x)
  %p = test::Start(%y)
  %n = Neg(%dy)
  %t = test::Start(%n)
  %a = Mul(%y, %dy)
  %b = Neg(%a)
return ("y" = %y, "d_a" = %a, "d_b" = %b)
)",
                        1, 2),
            (std::vector<int>{-1, -1, 0, 0, 0, 1}));
}

// What is complete by then, and what reads it, runs before: a user's code may raise.
TEST(Effects, ASegmentEndsBeforeAUsersBackward) {
  EXPECT_EQ(segments_of(R"(graph (%x: float32[4] user, %dy: float32[4] gradient)
  %y = Exp(%x)
  %a = Mul(%x, %dy)
  %n = Neg(%dy)
  %g = test::Users(%dy)
  %b = Mul(%g, %x)
  %c = Mul(%n, %b)
return ("y" = %y, "d_a" = %a, "d_b" = %b, "d_c" = %c)
)",
                        1, 3, 1 << 20),
            (std::vector<int>{-1, 0, 0, 1, 1, 1}));
}

TEST(Effects, OtherClassesAreForward) {
  for (const char* name : {"random", "check", "state_write", "python"})
    EXPECT_EQ(segments_of(with(R"(graph (%x: float32[4] user)
  %y = Exp(%x)
  %n = Neg(%x)
  %e = test::EFFECT(%n)
  %a = Mul(%y, %e)
return ("y" = %y, "d_a" = %a)
)",
                               "EFFECT", name),
                          1, 1),
              (std::vector<int>{-1, -1, -1, 0}));
}

TEST(Effects, NothingIsRemovedMergedOrRepeated) {
  for (const char* name : {"random", "check", "state_write", "collective", "python"}) {
    const auto graph = parse(with(R"(graph (%x: float32[4] user, %dy: float32[4] gradient)
  %1 = test::EFFECT(%x)
  %2 = test::EFFECT(%x)
  %3 = test::EFFECT(%x)
  %y = Exp(%1)
  %a = Mul(%dy, %2)
return ("y" = %y, "d_a" = %a)
)",
                                  "EFFECT", name),
                             ops());
    EXPECT_EQ(merge_equal(*graph) + remove_dead(*graph), 0u);
    const std::vector<size_t> bytes{16};
    grad::assign_segments(*graph, 1, 0, bytes);
    for (Node* node : graph->order()) node->recompute = node->segment < 0;
    EXPECT_EQ(grad::choose_stash(*graph), 0u) << name;
  }
}

TEST(Effects, WhatReadsAnOpaqueValueIsNotRepeated) {
  const auto graph = parse(R"(graph (%x: float32[4] user, %dy: float32[4] gradient)
  %t = test::Start(%x)
  %w = test::Wait(%t, %x)
  %n = Neg(%w)
  %y = Exp(%n)
  %a = Mul(%dy, %n)
return ("y" = %y, "d_a" = %a)
)",
                           ops());
  const std::vector<size_t> bytes{16};
  grad::assign_segments(*graph, 1, 0, bytes);
  for (Node* node : graph->order()) node->recompute = node->segment < 0;
  EXPECT_EQ(grad::choose_stash(*graph), 1u);
  std::vector<std::string> twins;
  for (const Node* node : graph->order())
    if (node->by == "recompute") twins.push_back(node->op);
  EXPECT_EQ(twins, (std::vector<std::string>{"Neg"}));
}

}  // namespace
}  // namespace ort
