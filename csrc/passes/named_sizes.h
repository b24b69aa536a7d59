// Sizes that only a run tells: a name each, given by the node in whose results it is first.
#pragma once

#include <set>
#include <string>

#include "csrc/graph/graph.h"

namespace ort {

// With the node these names would go.
std::set<std::string> sizes_named_by(const Node& node);
// All sizes that its results, its attributes and its bodies are written in.
void collect_sizes(const Node& node, std::set<std::string>& names);

}  // namespace ort
