// Dead code elimination: one walk from the end removes chains whole.
#include "csrc/passes/dce.h"

#include <algorithm>

#include "csrc/graph/schema.h"
#include "csrc/passes/named_sizes.h"

namespace ort {

size_t remove_dead(Graph& graph) {
  size_t removed = 0;
  std::vector<Node*> nodes = graph.order();
  std::set<std::string> said;  // the sizes that live nodes say
  const auto names_one = [&](const Node& node) {
    const std::set<std::string> names = sizes_named_by(node);
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return said.count(name) != 0; });
  };
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node* node = *it;
    const bool dead = !node->schema->has_effect(*node) &&
                      std::all_of(node->out.begin(), node->out.end(),
                                  [&](ValueId id) { return id == kNone || graph.unused(id); });
    if (!dead || names_one(*node)) {
      collect_sizes(*node, said);
      continue;
    }
    graph.erase(node);
    ++removed;
  }
  return removed;
}

}  // namespace ort
