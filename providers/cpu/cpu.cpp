// The provider itself: what it can run, which regions it takes, and the kernel of a region.
#include "providers/cpu/provider.h"

#include "csrc/passes/regions.h"
#include "providers/cpu/tile_lower.h"
#include "providers/cpu/tile_region.h"

namespace ort::cpu {

// In one visible list; each family fills its ops, best kernels first.
const KernelTable& kernel_table() {
  static const KernelTable* const table = [] {
    auto* t = new KernelTable("cpu");
    register_matmul(*t);
    register_movement(*t);
    register_index(*t);
    register_reduce(*t);
    register_plain(*t);
    register_loss(*t);
    register_attention(*t);
    register_conv(*t);
    register_pool(*t);
    register_batch_norm(*t);
    register_rnn(*t);
    return t;
  }();
  return *table;
}

namespace {

class CpuProvider final : public Provider {
 public:
  std::string_view name() const override { return "cpu"; }

  Verdict can_run(const Node& node) const override {
    const Verdict tile = fits_tile(node);
    if (tile) return tile;
    const bool has_kernel = kernel_table().has(node.qualified());
    if (!has_kernel && !lowers(node)) return tile;
    if (!has_kernel) return Verdict::no("tile program: " + tile.reason);
    const Verdict kernel = kernel_table().can_run(node);
    if (kernel || !lowers(node)) return kernel;
    return Verdict::no("tile program: " + tile.reason + "; " + kernel.reason);
  }

  std::vector<Region> claim(Graph& graph, const Claimed& claimed) const override {
    const auto tiled = [&](const Node& node) { return !claimed.taken(node) && fits_tile(node); };
    std::vector<Region> regions;
    for (std::vector<Node*>& nodes : grow_regions(graph, tiled, fit_together))
      regions.push_back(tile_region(std::move(nodes)));
    for (Node* node : graph.order()) {
      if (claimed.taken(*node) || fits_tile(*node) || !kernel_table().can_run(*node)) continue;
      regions.push_back(region_of(*node));
      regions.back().kind = "kernel";
    }
    return regions;
  }

  // Every error names a node: a library's does not.
  std::unique_ptr<Kernel> prepare(const Region& region, const Binding& binding) const override {
    try {
      if (region.kind == "tile") return prepare_tile(region, binding);
      check(region.nodes.size() == 1, "a kernel runs one node, the region has {}",
            region.nodes.size());
      return kernel_table().prepare(*region.nodes[0], binding);
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
