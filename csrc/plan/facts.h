// What the shape rules of a graph's nodes assume of its sizes: gathered when it is lowered,
// evaluated when a plan is bound, before any kernel is prepared.
#pragma once

#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

struct SizeFact {
  const Node* node;  // of the laid-out graph; the first that assumes it
  Fact fact;
};

// Every size must follow from those of the inputs: one that only a run tells (NonZero's) is the
// error of the node that makes it, the first in program order.
void check_sizes_are_known(const Graph& graph);
std::vector<SizeFact> gather_facts(const Graph& graph);
// Throws with the node, the sizes and what its rule assumed.
void check_facts(const std::vector<SizeFact>& facts, const Symbols& symbols);

}  // namespace ort
