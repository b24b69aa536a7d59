// Which values show the same memory.
#pragma once

#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

// By value: that whose memory it shows, under all views; itself where it has its own.
std::vector<ValueId> sources(const Graph& graph);

}  // namespace ort
