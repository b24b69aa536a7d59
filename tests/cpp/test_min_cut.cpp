// Maximum flow against every cut of small networks, and which of several minimum cuts is taken.
#include "gradient_graph/min_cut.h"

#include <gtest/gtest.h>

#include <random>

using ort::grad::FlowNetwork;

TEST(MinCut, TakesTheCutNearestToTheSink) {
  FlowNetwork network(5);  // 0 -> 1 -> 2 -> 3 -> 4, the capacities 7 3 3 9
  network.add_edge(0, 1, 7);
  network.add_edge(1, 2, 3);
  network.add_edge(2, 3, 3);
  network.add_edge(3, 4, 9);
  EXPECT_EQ(network.maximise(0, 4), 3u);
  EXPECT_EQ(network.sink_side(4), (std::vector<bool>{false, false, false, true, true}));
}

TEST(MinCut, EqualsTheSmallestOfAllCuts) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    constexpr size_t kNodes = 7;
    uint64_t capacity[kNodes][kNodes] = {};
    FlowNetwork network(kNodes);
    for (size_t a = 0; a < kNodes; ++a)
      for (size_t b = 0; b < kNodes; ++b)
        if (a != b && random() % 3 == 0) {
          capacity[a][b] = random() % 20;
          network.add_edge(a, b, capacity[a][b]);
        }
    const auto across = [&](auto on_sink_side) {
      uint64_t sum = 0;
      for (size_t a = 0; a < kNodes; ++a)
        for (size_t b = 0; b < kNodes; ++b)
          if (!on_sink_side(a) && on_sink_side(b)) sum += capacity[a][b];
      return sum;
    };
    uint64_t smallest = FlowNetwork::kUnbounded;
    for (unsigned set = 0; set < (1u << kNodes); ++set)
      if (!(set & 1) && (set >> (kNodes - 1) & 1))
        smallest = std::min(smallest, across([&](size_t n) { return (set >> n & 1) != 0; }));
    EXPECT_EQ(network.maximise(0, kNodes - 1), smallest);
    const std::vector<bool> side = network.sink_side(kNodes - 1);
    EXPECT_EQ(across([&](size_t n) { return side[n]; }), smallest);
  }
}
