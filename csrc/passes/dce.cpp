// Dead code elimination: one walk from the end removes chains whole.
#include "csrc/passes/dce.h"

#include <algorithm>

#include <set>
#include <string>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

// The sizes that live nodes name: who finds one is needed for it, though nobody reads its elements.
class NamedSizes {
 public:
  explicit NamedSizes(const std::vector<Node*>& nodes)
      : any_(std::any_of(nodes.begin(), nodes.end(),
                         [](const Node* node) { return node->schema->allocates_results(*node); })) {
  }

  void add(const Node& node) {
    if (!any_) return;
    for (const ValueId id : node.out)
      if (id != kNone) collect(node.graph->value(id).type().dims.value_or(Dims{}), names_);
    for (const auto& [name, attr] : node.attrs)
      if (const auto* dims = std::get_if<Dims>(&attr)) collect(*dims, names_);
  }

  bool found_by(const Node& node) const {
    std::set<std::string> own;
    if (node.schema->allocates_results(node))
      for (const ValueId id : node.out)
        if (id != kNone) collect(node.graph->value(id).type().dims.value_or(Dims{}), own);
    return std::any_of(own.begin(), own.end(), [&](const std::string& name) {
      return Graph::is_fresh(name) && names_.count(name) != 0;
    });
  }

 private:
  static void collect(const Dims& dims, std::set<std::string>& names) {
    for (const Dim& dim : dims) dim.collect_symbols(names);
  }

  bool any_;
  std::set<std::string> names_;
};

}  // namespace

size_t remove_dead(Graph& graph) {
  size_t removed = 0;
  std::vector<Node*> nodes = graph.order();
  NamedSizes named(nodes);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node* node = *it;
    const bool dead = !node->schema->has_effect(*node) &&
                      std::all_of(node->out.begin(), node->out.end(),
                                  [&](ValueId id) { return id == kNone || graph.unused(id); });
    if (!dead || named.found_by(*node)) {
      named.add(*node);
      continue;
    }
    graph.erase(node);
    ++removed;
  }
  return removed;
}

}  // namespace ort
