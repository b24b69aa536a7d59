// Maximum flow, and the minimum cut that it proves. Called by stash.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ort::grad {

class FlowNetwork {
 public:
  static constexpr uint64_t kUnbounded = uint64_t{1} << 60;

  explicit FlowNetwork(size_t nodes) : edges_of_(nodes) {}
  void add_edge(size_t from, size_t to, uint64_t capacity);
  uint64_t maximise(size_t source, size_t sink);
  // After maximise: for each node, whether it is on the sink's side of the minimum cut that lies
  // nearest to the sink.
  std::vector<bool> sink_side(size_t sink) const;
  size_t steps() const { return steps_; }  // edges that were looked at

 private:
  static constexpr size_t kNowhere = ~size_t{0};
  struct Edge {
    size_t to;
    uint64_t left;  // capacity; edge i ^ 1 is its reverse
  };
  bool find_levels(size_t source, size_t sink);
  uint64_t push(size_t source, size_t sink);
  size_t next_node(size_t node);
  Edge& current_edge(size_t node) { return edges_[edges_of_[node][next_[node]]]; }

  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
  size_t steps_ = 0;
};

}  // namespace ort::grad
