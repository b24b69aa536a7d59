// The provider itself: which regions it takes, and what their kernels are. Nothing of CUDA is
// opened until a kernel is prepared or memory of a device is asked for.
#include "providers/cuda/provider.h"

#include "csrc/passes/regions.h"
#include "providers/cuda/tile/tile.h"
#include "providers/tile/lower.h"
#include "providers/tile/region.h"

namespace ort::cuda {

const KernelTable& kernel_table() {
  static const KernelTable* const table = [] {
    auto* t = new KernelTable("cuda");
    Family<KernelTable>::add_all("cuda", *t);
    return t;
  }();
  return *table;
}

namespace {

class CudaProvider final : public Provider {
 public:
  std::string_view name() const override { return "cuda"; }

  Verdict can_run(const Node& node) const override {
    const Verdict fused = tile::fits(node);
    if (fused) return fused;
    const bool has_kernel = kernel_table().has(node.qualified());
    if (!has_kernel && !tile::lowers(node))
      return Verdict::no("cuda has no kernel for " + node.qualified());
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

  // Every error names a node: a library's does not. A constant's bytes are known on the host.
  Prepared prepare(const Region& region, const Binding& binding) const override {
    try {
      if (region.kind == "tile") return prepare_tile(region, binding);
      return kernel_table().prepare(*region.nodes[0], binding);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with('[')) throw;
      const Node& node = *region.nodes[0];
      fail("[{}] {}; {}", node.qualified(), error.what(), node.describe());
    }
  }

  bool expands(const Node&) const override { return true; }
  std::vector<bool> reads_on_host(const Region& region) const override {
    std::vector<bool> on_host = host_inputs(region);
    for (const Node* node : region.nodes)
      for (size_t i = 0; i < node->in.size(); ++i)
        if (tile::role_of(*node, i) == tile::Role::key)
          for (size_t k = 0; k < on_host.size(); ++k)
            on_host[k] = on_host[k] && region.in[k] != node->in[i];
    return on_host;
  }
  bool gives(DeviceKind of) const override { return of == kind(); }
  Device device(Device home) const override {
    return home.kind == kind() ? home : Device{kind(), 0};
  }
  DeviceRuntime* runtime(Device device) const override {
    return device.kind == kind() ? &Gpu::of(device.index) : nullptr;
  }
};

[[maybe_unused]] const bool registered = [] {
  register_provider(std::make_unique<CudaProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::cuda
