// Claims in order of providers.
#include "csrc/plan/partition.h"

#include <algorithm>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/graph/error_kind.h"

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

[[noreturn]] void fail_unclaimed(const Node& node, std::span<const Provider* const> providers) {
  std::string reasons;
  for (const Provider* provider : providers)
    reasons += format("{}{}: {}", reasons.empty() ? "" : "; ", provider->name(),
                      provider->can_run(node).reason);
  throw KindedError(ErrorKind::not_implemented, format("[{}] no provider runs it ({}); {}",
                                                       node.qualified(), reasons, node.describe()));
}

// ORTMODULE_WHY, before an op that nobody runs becomes an error.
void print_refusals(const Graph& graph, const Partition& partition) {
  const std::string op = env::why();
  if (op.empty()) return;
  size_t count = 0;
  for (const Refusal& refusal : partition.refusals) {
    if (refusal.op != op) continue;
    log("why {}: {} refuses {}: {}", op, refusal.provider, refusal.node, refusal.reason);
    ++count;
  }
  if (count > 0) return;
  std::set<std::string> others;  // of that name, in other domains
  for (const Node* node : graph.order()) {
    if (node->qualified() == op) return log("why {}: nobody refuses it here", op);
    if (node->op == op) others.insert(node->qualified());
  }
  std::string there;
  for (const std::string& other : others) there += (there.empty() ? ", there is " : ", ") + other;
  log("why {}: no node here is {}{}", op, op, there);
}

}  // namespace

void add_refusals(const Node& node, std::span<const Provider* const> providers,
                  std::vector<Refusal>& refusals) {
  for (const Provider* provider : providers) {
    const Verdict verdict = provider->can_run(node);
    if (verdict) break;
    refusals.push_back(
        {node.qualified(), std::string(provider->name()), verdict.reason, node.describe()});
  }
}

bool needs_provider(const Node& node) {
  return !node.schema->is_free();
}

Partition partition(Graph& graph, std::span<const Provider* const> providers, Device home,
                    std::vector<Refusal> earlier) {
  Partition result;
  result.refusals = std::move(earlier);
  for (const Node* node : graph.order())
    if (needs_provider(*node)) add_refusals(*node, providers, result.refusals);
  print_refusals(graph, result);
  Taken taken;
  for (const Provider* provider : providers) {
    const Device device = provider->device(home);
    for (Region& region : provider->claim(graph, taken)) {
      for (const Node* node : region.nodes) taken.take(*node);
      std::vector<bool> on_host = device.is_host() ? std::vector<bool>(region.in.size(), true)
                                                   : provider->reads_on_host(region);
      result.claims.push_back({provider, std::move(region), device, std::move(on_host)});
    }
  }
  for (const Node* node : graph.order())
    if (!taken.taken(*node)) fail_unclaimed(*node, providers);
  return result;
}

}  // namespace ort
