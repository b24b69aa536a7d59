// Which provider runs which nodes, and why the others said no.
#pragma once

#include <set>
#include <span>

#include "providers/provider.h"

namespace ort {

struct Claim {
  const Provider* provider;
  Region region;
  Device device{};              // on which it runs
  std::vector<bool> on_host{};  // of the region's inputs: whether it is read on the host
};

// Why a provider does not run a node; the reason names each of its kernels that might.
struct Refusal {
  std::string op, provider, reason, node;  // node: as Node::describe has it
};

struct Partition {
  std::vector<Claim> claims;  // in program order of their last nodes
  std::vector<Refusal> refusals;
};

// Constants, sizes and views need no provider: a plan holds or aliases them.
bool needs_provider(const Node& node);

// Adds why the providers before the one that takes the node, or all of them, refuse it.
void add_refusals(const Node& node, std::span<const Provider* const> providers,
                  std::vector<Refusal>& refusals);

// Providers claim in order; the graph stays as it is. A node that is left over is an error naming
// op, place and every reason. `home`: where the graph's inputs lie; `earlier`: refusals of nodes
// that were expanded before.
Partition partition(Graph& graph, std::span<const Provider* const> providers, Device home = {},
                    std::vector<Refusal> earlier = {});

}  // namespace ort
