// Asks each provider about each op that has a definition.
#include "csrc/plan/expand_unclaimed.h"

#include <algorithm>

#include "csrc/graph/expand.h"
#include "csrc/passes/dce.h"
#include "csrc/plan/wrap_in_casts.h"

namespace ort {
namespace {

// Before one asks for its parts.
bool anyone_takes(const Node& node, std::span<const Provider* const> providers) {
  for (const Provider* provider : providers) {
    if (provider->can_run(node)) return true;
    if (provider->expands(node)) return false;
  }
  return false;
}

}  // namespace

std::vector<Refusal> expand_unclaimed(Graph& graph, std::span<const Provider* const> providers) {
  std::vector<Refusal> refusals;
  expand_all(graph, [&](const Node& node) {
    const bool unclaimed = needs_provider(node) && node.schema->definition() &&
                           !anyone_takes(node, providers) && !only_in_float32(node, providers);
    if (unclaimed) add_refusals(node, providers, refusals);
    return unclaimed;
  });
  remove_dead(graph);
  return refusals;
}

}  // namespace ort
