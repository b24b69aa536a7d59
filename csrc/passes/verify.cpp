// What must hold of a graph: order, uses, types and schemas.
#include "csrc/passes/verify.h"

#include <set>

#include "csrc/graph/schema.h"

namespace ort {
namespace {

void verify_uses(const Graph& graph, const Node& node, std::string_view after) {
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.has_input(i)) continue;
    size_t found = 0;
    for (const Use& use : node.input(i).uses())
      found += use.node == &node && use.index == static_cast<int>(i);
    check(found == 1, "after {}: use {} of {} is recorded {} times", after, i, node.describe(),
          found);
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == kNone) continue;
    const Value value = node.output(i);
    check(value.producer() == &node && value.index() == static_cast<int>(i),
          "after {}: output {} of {} has another producer", after, i, node.describe());
    for (const Use& use : value.uses())
      check(!use.node->dead && use.node->input(static_cast<size_t>(use.index)) == value,
            "after {}: value %{} has a stale use", after, value.id);
  }
  (void)graph;
}

}  // namespace

void verify(const Graph& graph, std::string_view after) {
  std::set<ValueId> known(graph.inputs().begin(), graph.inputs().end());
  for (const Node* node : graph.order()) {
    check(node->schema != nullptr && !node->dead, "after {}: {} is dead or has no schema", after,
          node->describe());
    for (const ValueId id : node->in)
      check(id == kNone || known.count(id), "after {}: {} of {} reads %{} before it is made", after,
            node->qualified(), node->describe(), id);
    for (const ValueId id : node->out)
      if (id != kNone) check(known.insert(id).second, "after {}: %{} is made twice", after, id);
    verify_uses(graph, *node, after);
    for (const auto& [name, body] : node->bodies) verify(*body, after);
  }
  for (const Output& output : graph.outputs())
    check(known.count(output.value) != 0, "after {}: output '{}' is not made", after, output.name);
}

}  // namespace ort
