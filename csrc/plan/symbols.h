// The symbols of a graph's inputs, solved for the sizes of a feed.
#pragma once

#include <span>

#include "csrc/graph/graph.h"

namespace ort {

// Values of the symbols that make the dims of the first `count` inputs these sizes; the verdict, or
// the error, names the input at fault.
Verdict match_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count,
                      Symbols& symbols);
Symbols solve_symbols(const Graph& graph, std::span<const Sizes> input_sizes, size_t count);

}  // namespace ort
