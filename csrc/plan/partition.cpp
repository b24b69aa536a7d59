// Claims in order of providers, after expansion of what nobody takes whole.
#include "csrc/plan/partition.h"

#include <algorithm>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/graph/expand.h"
#include "csrc/passes/dce.h"

namespace ort {
namespace {

class Taken : public Claimed {
 public:
  bool taken(const Node& node) const override {
    return nodes_.count(&node) || !needs_provider(node);
  }
  void take(const Node& node) { nodes_.insert(&node); }
  bool mine(const Node& node) const { return nodes_.count(&node) != 0; }

 private:
  std::set<const Node*> nodes_;
};

bool anyone_takes(const Node& node, std::span<const Provider* const> providers) {
  return std::any_of(providers.begin(), providers.end(),
                     [&](const Provider* provider) { return provider->can_run(node).ok; });
}

[[noreturn]] void fail_unclaimed(const Node& node, std::span<const Provider* const> providers) {
  std::string reasons;
  for (const Provider* provider : providers)
    reasons += format("{}{}: {}", reasons.empty() ? "" : "; ", provider->name(),
                      provider->can_run(node).reason);
  fail("[{}] no provider runs it ({}); {}", node.qualified(), reasons, node.describe());
}

// Of the nodes that were not asked about before: those of definitions come later.
void record_refusals(const Graph& graph, std::span<const Provider* const> providers,
                     std::set<const Node*>& asked, Partition& result) {
  for (const Node* node : graph.order()) {
    if (!needs_provider(*node) || !asked.insert(node).second) continue;
    for (const Provider* provider : providers) {
      const Verdict verdict = provider->can_run(*node);
      if (verdict) break;
      result.refusals.push_back(
          {node->qualified(), std::string(provider->name()), verdict.reason, node->describe()});
    }
  }
}

// ORTMODULE_WHY, before an op that nobody runs becomes an error.
void print_refusals(const Partition& partition) {
  const std::string op = env::why();
  if (op.empty()) return;
  size_t count = 0;
  for (const Refusal& refusal : partition.refusals) {
    if (refusal.op != op) continue;
    log("why {}: {} refuses {}: {}", op, refusal.provider, refusal.node, refusal.reason);
    ++count;
  }
  if (count == 0) log("why {}: nobody refuses it here", op);
}

}  // namespace

bool needs_provider(const Node& node) {
  return !node.schema->is_free();
}

Partition partition(Graph& graph, std::span<const Provider* const> providers, Device home) {
  Partition result;
  std::set<const Node*> asked;
  record_refusals(graph, providers, asked, result);
  expand_all(graph, [&](const Node& node) {
    return needs_provider(node) && node.schema->definition() && !anyone_takes(node, providers);
  });
  remove_dead(graph);
  record_refusals(graph, providers, asked, result);
  print_refusals(result);
  Taken taken;
  for (const Provider* provider : providers) {
    const Device device = provider->device(home);
    for (Region& region : provider->claim(graph, taken)) {
      for (const Node* node : region.nodes) taken.take(*node);
      std::vector<bool> on_host = host_inputs(region);
      if (device.is_host()) on_host.assign(on_host.size(), true);
      result.claims.push_back({provider, std::move(region), device, std::move(on_host)});
    }
  }
  for (const Node* node : graph.order())
    if (!taken.taken(*node)) fail_unclaimed(*node, providers);
  return result;
}

}  // namespace ort
