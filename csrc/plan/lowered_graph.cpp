// From a graph to claims in the order in which they run.
#include "csrc/plan/lowered_graph.h"

#include <algorithm>

#include "csrc/plan/expand_unclaimed.h"
#include "csrc/plan/schedule.h"
#include "csrc/plan/wrap_in_casts.h"

namespace ort {

LoweredGraph lower_graph(std::unique_ptr<Graph> graph, LoweringOptions options,
                         std::span<const Provider* const> providers) {
  LoweredGraph lowered;
  lowered.options = std::move(options);
  lowered.providers.assign(providers.begin(), providers.end());
  check_sizes_are_known(*graph);
  std::vector<Refusal> refusals = expand_unclaimed(*graph, providers);
  const std::vector<Refusal> wrapped = wrap_in_casts(*graph, providers);
  refusals.insert(refusals.end(), wrapped.begin(), wrapped.end());
  lowered.partition = partition(*graph, providers, lowered.options.home, std::move(refusals));
  lowered.order = schedule(*graph, lowered.partition.claims);
  lowered.facts = gather_facts(*graph);
  lowered.graph = std::move(graph);
  return lowered;
}

Device LoweredGraph::device_of_input(size_t i) const {
  const bool host = graph->role(graph->inputs()[i]) == Role::key || options.host_inputs.count(i);
  return host ? Device{} : options.home;
}

int segment_of(const Claim& claim) {
  int segment = -1;
  for (const Node* node : claim.region.nodes) segment = std::max(segment, node->segment);
  return segment;
}

}  // namespace ort
