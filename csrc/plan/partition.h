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

// Providers claim in order. An op that none takes but that has a definition is expanded (in
// `graph`) and offered again; one that is left over is an error naming op, place and every reason.
// `home`: where the graph's inputs lie.
Partition partition(Graph& graph, std::span<const Provider* const> providers, Device home = {});

}  // namespace ort
