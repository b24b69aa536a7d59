// Grows regions: the one place where nodes are joined into what one kernel runs. Called by claim.
#pragma once

#include <functional>
#include <span>

#include "csrc/graph/graph.h"

namespace ort {

// May these nodes, in program order, be one region?
using Joinable = std::function<bool(std::span<Node* const>)>;

struct Growth {
  size_t most = 256;        // nodes of a region: what one merge costs does not grow with the graph
  size_t* steps = nullptr;  // counts what is looked at, for tests
};

// Partitions the nodes that `eligible` takes into convex regions: no path leaves a region and comes
// back, not even through other regions; where effects order two nodes there is a path, too. Nodes
// of different segments are never joined. Producers are joined with consumers first, then regions
// that read one value.
std::vector<std::vector<Node*>> grow_regions(Graph& graph,
                                             const std::function<bool(const Node&)>& eligible,
                                             const Joinable& joinable, Growth growth = {});

// The values that enter and leave a set of nodes, each once, in order of appearance.
struct Boundary {
  std::vector<ValueId> in, out;
};
Boundary boundary_of(std::span<Node* const> nodes);

}  // namespace ort
