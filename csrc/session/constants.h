// The constants of a session's graphs: sessions on equal weights share them, and who reads their
// bytes holds them.
#pragma once

#include <memory>
#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

// The tensor of discardable memory that has this one's dtype, shape and bytes, where a session
// holds such a one; else this one, for those to come. Of other memory: this one.
Tensor shared_constant(const Tensor& tensor);

// Puts `shared_constant` of each constant in its place, those of bodies too.
void share_constants(Graph& graph);

// While they live, the bytes of a graph's constants may be read.
using HeldConstants = std::vector<std::shared_ptr<const void>>;

// Those of bodies too.
HeldConstants hold_constants(const Graph& graph);

}  // namespace ort
