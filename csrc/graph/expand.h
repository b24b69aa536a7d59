// Replacing a node by its definition.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

// Expands one node in place; false when its schema has no definition.
bool expand(Node& node);

// Expands every node for which `wanted` holds, the parts of what was expanded among them.
size_t expand_all(Graph& graph, const std::function<bool(const Node&)>& wanted);

}  // namespace ort
