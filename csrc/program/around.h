// Symbols of a graph that is run inside another: the caller gives those that no input tells.
#pragma once

#include <string>
#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

// The symbols in which sizes are written and that no size of an input is.
std::vector<std::string> unsolved_symbols(const Graph& graph);
// An input of role shape for each, which has the symbol's value as its size.
void add_shapes(Graph& graph, const std::vector<std::string>& symbols);

}  // namespace ort
