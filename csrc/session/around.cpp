// Which symbols the inputs of a graph leave open.
#include "csrc/session/around.h"

#include <set>

namespace ort {
namespace {

void collect(const Dims& dims, std::set<std::string>& names) {
  for (const Dim& dim : dims) dim.collect_symbols(names);
}

// Those that a node's kernel asks for: in its attributes, its graphs, and the types it was told.
void collect(const Node& node, std::set<std::string>& names) {
  for (const auto& [name, value] : node.attrs)
    if (const auto* dims = std::get_if<Dims>(&value)) collect(*dims, names);
  for (const auto& [name, body] : node.bodies)
    for (const std::string& symbol : unsolved_symbols(*body)) names.insert(symbol);
  if (!node.attrs.has("types")) return;
  for (const ValueId id : node.out)
    if (id != kNone) collect(node.graph->value(id).type().dims.value_or(Dims{}), names);
}

}  // namespace

std::vector<std::string> unsolved_symbols(const Graph& graph) {
  std::set<std::string> used, solved;
  for (const ValueId id : graph.inputs()) {
    const Dims dims = graph.value(id).type().dims.value_or(Dims{});
    for (const Dim& dim : dims)
      if (const auto name = dim.symbol_name()) solved.insert(*name);
    collect(dims, used);
    if (const auto& contents = graph.contents(id)) collect(*contents, used);
  }
  for (const Node* node : graph.order()) collect(*node, used);
  std::vector<std::string> names;
  for (const std::string& name : used)
    if (!solved.count(name)) names.push_back(name);
  return names;
}

void add_shapes(Graph& graph, const std::vector<std::string>& symbols) {
  for (const std::string& name : symbols)
    graph.input(name + " around", Type::tensor(DType::undefined, Dims{Dim::symbol(name)}),
                Role::shape);
}

}  // namespace ort
