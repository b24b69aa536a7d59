// The provider itself: what it can run, which regions it takes, and the kernel of a region.
#include "providers/cpu/provider.h"

#include "csrc/core/mutex.h"
#include "csrc/passes/regions.h"
#include "providers/cpu/tile/prepare.h"
#include "providers/tile/lower.h"
#include "providers/tile/programs.h"
#include "providers/tile/region.h"

namespace ort::cpu {

// Each family fills its ops, best kernels first.
const KernelTable& kernel_table() {
  static const KernelTable* const table = [] {
    auto* t = new KernelTable("cpu");
    Family<KernelTable>::add_all("cpu", *t);
    return t;
  }();
  return *table;
}

namespace {

class CpuProvider final : public Provider {
 public:
  std::string_view name() const override { return "cpu"; }

  Verdict can_run(const Node& node) const override {
    const Verdict fused = tile::fits(node);
    if (fused) return fused;
    const bool has_kernel = kernel_table().has(node.qualified());
    if (!has_kernel && !tile::lowers(node)) return fused;
    if (!has_kernel) return Verdict::no("tile program: " + fused.reason);
    const Verdict kernel = kernel_table().can_run(node);
    if (kernel || !tile::lowers(node)) return kernel;
    return Verdict::no("tile program: " + fused.reason + "; " + kernel.reason);
  }

  std::vector<Region> claim(Graph& graph, const Claimed& claimed) const override {
    const auto tiled = [&](const Node& node) { return !claimed.taken(node) && tile::fits(node); };
    std::vector<Region> regions;
    for (std::vector<Node*>& nodes : grow_regions(graph, tiled, tile::fit_together))
      regions.push_back(tile::region_of(std::move(nodes)));
    for (Node* node : graph.order()) {
      if (claimed.taken(*node) || tile::fits(*node) || !kernel_table().can_run(*node)) continue;
      regions.push_back(region_of(*node));
      regions.back().kind = "kernel";
    }
    return regions;
  }

  bool takes_layouts(const Region& region) const override {
    return region.kind == "tile" ? tile::takes_layouts(region)
                                 : kernel_table().takes_layouts(region.nodes[0]->qualified());
  }

  // Every error names a node: a library's does not. oneDNN makes its primitives under a mutex.
  Prepared prepare(const Region& region, const Binding& binding) const override {
    const NoFork making;
    try {
      if (region.kind == "tile") return prepare_tile(region, binding);
      check(region.nodes.size() == 1, "a kernel runs one node, the region has {}",
            region.nodes.size());
      return kernel_table().prepare(*region.nodes[0], binding);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with('[')) throw;
      const Node& node = *region.nodes[0];
      fail("[{}] {}; {}", node.qualified(), error.what(), node.describe());
    }
  }
};

[[maybe_unused]] const bool registered = [] {
  register_provider(std::make_unique<CpuProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::cpu
