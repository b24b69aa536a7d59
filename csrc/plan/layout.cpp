// From a graph to claims in the order in which they run.
#include "csrc/plan/layout.h"

#include <algorithm>

#include "csrc/plan/expand_unclaimed.h"
#include "csrc/plan/schedule.h"
#include "csrc/plan/wrap_in_casts.h"

namespace ort {

Layout lay_out(std::unique_ptr<Graph> graph, LayoutOptions options,
               std::span<const Provider* const> providers) {
  Layout layout;
  layout.options = std::move(options);
  layout.providers.assign(providers.begin(), providers.end());
  check_sizes_are_known(*graph);
  std::vector<Refusal> refusals = expand_unclaimed(*graph, providers);
  const std::vector<Refusal> wrapped = wrap_in_casts(*graph, providers);
  refusals.insert(refusals.end(), wrapped.begin(), wrapped.end());
  layout.partition = partition(*graph, providers, layout.options.home, std::move(refusals));
  layout.order = schedule(*graph, layout.partition.claims);
  layout.facts = gather_facts(*graph);
  layout.graph = std::move(graph);
  return layout;
}

Device Layout::device_of_input(size_t i) const {
  const bool host = graph->role(graph->inputs()[i]) == Role::key || options.host_inputs.count(i);
  return host ? Device{} : options.home;
}

int segment_of(const Claim& claim) {
  int segment = -1;
  for (const Node* node : claim.region.nodes) segment = std::max(segment, node->segment);
  return segment;
}

}  // namespace ort
