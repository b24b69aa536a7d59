// Which symbols the inputs of a graph leave open.
#include "csrc/program/around.h"

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

// Sizes that only the node's run tells: fresh ones, that nothing it reads has.
std::set<std::string> found_by(const Node& node) {
  std::set<std::string> found, read;
  for (const ValueId id : node.out) {
    if (id == kNone) continue;
    collect(node.graph->value(id).type().dims.value_or(Dims{}), found);
    collect(node.graph->contents(id).value_or(Dims{}), found);
  }
  for (const ValueId id : node.in) {
    if (id == kNone) continue;
    collect(node.graph->value(id).type().dims.value_or(Dims{}), read);
    collect(node.graph->contents(id).value_or(Dims{}), read);
  }
  collect(node, read);
  std::erase_if(found, [&](const std::string& name) {
    return read.count(name) != 0 || !Graph::is_fresh(name);
  });
  return found;
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
  for (const Node* node : graph.order()) {
    collect(*node, used);
    for (const std::string& name : found_by(*node))
      if (!used.count(name)) solved.insert(name);
  }
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
