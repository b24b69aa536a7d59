// Fresh symbols for the inputs, then inference in program order.
#include "csrc/session/free_sizes.h"

#include <algorithm>

namespace ort {
namespace {

bool names_sizes(const Node& node) {
  return std::ranges::any_of(node.attrs, [](const auto& item) {
    const Dims* dims = std::get_if<Dims>(&item.second);
    return dims &&
           std::any_of(dims->begin(), dims->end(), [](const Dim& dim) { return !dim.value(); });
  });
}

}  // namespace

std::unique_ptr<Graph> with_free_sizes(const Graph& graph) {
  auto copy = graph.clone();
  const std::vector<Node*> nodes = copy->order();
  if (std::any_of(nodes.begin(), nodes.end(), [](const Node* node) { return names_sizes(*node); }))
    return nullptr;
  for (const ValueId id : copy->inputs()) {
    Type type = copy->value(id).type();
    if (!type.dims) continue;
    for (Dim& dim : *type.dims)
      if (!dim.value()) dim = copy->fresh_symbol();
    copy->set_type(copy->value(id), std::move(type));
  }
  copy->infer();
  return copy;
}

}  // namespace ort
