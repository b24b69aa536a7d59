// The names that a file gives to sizes are hints: two axes of one name may be fed different sizes.
#pragma once

#include <memory>

#include "csrc/graph/graph.h"

namespace ort {

// A copy in which every axis of an input that is no number has a symbol of its own, and all types
// are inferred again. Null where attributes hold sizes of those names: of a capture they are law.
std::unique_ptr<Graph> with_free_sizes(const Graph& graph);

}  // namespace ort
