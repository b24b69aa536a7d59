// Replacing a node by its definition.
#pragma once

#include "csrc/graph/schema.h"

namespace ort {

// Expands one node in place; false when its schema has no definition.
bool expand(Node& node);

// An op that is its parts: no kernel, no shape rule. Its nodes are replaced before anything else is
// done.
inline bool is_compound(const OpSchema& schema) {
  return schema.definition() && !schema.infer();
}
// Whether its definition may ask: the ranks of its inputs, and elements of those that decide sizes.
bool knows_parts(const Node& node);
// Types of its outputs by its shape rule, or where it is its parts by these. Errors name the node.
void infer_outputs(Node& node);

// Expands every node for which `wanted` holds, the parts of what was expanded among them.
size_t expand_all(Graph& graph, const std::function<bool(const Node&)>& wanted);

}  // namespace ort
