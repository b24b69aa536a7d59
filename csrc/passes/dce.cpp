// Dead code elimination: one walk from the end removes chains whole.
#include "csrc/passes/dce.h"

#include <algorithm>

#include "csrc/graph/schema.h"

namespace ort {

size_t remove_dead(Graph& graph) {
  size_t removed = 0;
  std::vector<Node*> nodes = graph.order();
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node* node = *it;
    if (node->schema->has_effect(*node)) continue;
    const bool dead = std::all_of(node->out.begin(), node->out.end(),
                                  [&](ValueId id) { return id == kNone || graph.unused(id); });
    if (!dead) continue;
    graph.erase(node);
    ++removed;
  }
  return removed;
}

}  // namespace ort
