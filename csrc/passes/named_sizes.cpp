// Who names a size, and who says it.
#include "csrc/passes/named_sizes.h"

#include <algorithm>

namespace ort {
namespace {

void collect(const Dims& dims, std::set<std::string>& names) {
  for (const Dim& dim : dims) dim.collect_symbols(names);
}

void collect_attributes(const Node& node, std::set<std::string>& names) {
  for (const auto& [name, attr] : node.attrs)
    if (const auto* dims = std::get_if<Dims>(&attr)) collect(*dims, names);
}

const Dims& dims_of(const Node& node, ValueId id) {
  static const Dims none;
  const std::optional<Dims>& dims = node.graph->value(id).type().dims;
  return dims ? *dims : none;
}

}  // namespace

std::set<std::string> sizes_named_by(const Node& node) {
  std::set<std::string> made, given;
  for (const ValueId id : node.out)
    if (id != kNone)
      for (const Dim& dim : dims_of(node, id))
        if (const auto name = dim.symbol_name(); name && Graph::is_fresh(*name)) made.insert(*name);
  if (made.empty()) return made;
  for (const ValueId id : node.in) {
    if (id == kNone) continue;
    collect(dims_of(node, id), given);
    collect(node.graph->contents(id).value_or(Dims{}), given);
  }
  collect_attributes(node, given);
  std::set<std::string> named;
  std::set_difference(made.begin(), made.end(), given.begin(), given.end(),
                      std::inserter(named, named.end()));
  return named;
}

void collect_sizes(const Node& node, std::set<std::string>& names) {
  for (const ValueId id : node.out)
    if (id != kNone) collect(dims_of(node, id), names);
  collect_attributes(node, names);
  for (const auto& [name, body] : node.bodies)
    for (const Node* inside : body->order()) collect_sizes(*inside, names);
}

}  // namespace ort
