// The provider itself: what it can run, which regions it takes, and the kernel of a region.
#include "providers/cpu/provider.h"

#include "csrc/passes/regions.h"
#include "providers/cpu/tile_lower.h"
#include "providers/cpu/tile_region.h"

namespace ort::cpu {

// In one visible list; each family fills its ops, best kernels first.
const KernelTable& kernel_table() {
  static const KernelTable* const table = [] {
    auto* t = new KernelTable;
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

bool known_tensors(const Node& node) {
  const auto fits = [](Value v) { return !v || v.type().kind == Type::Kind::tensor; };
  for (size_t i = 0; i < node.in.size(); ++i)
    if (!fits(node.input(i))) return false;
  for (size_t i = 0; i < node.out.size(); ++i)
    if (!fits(node.output(i))) return false;
  return true;
}

class CpuProvider final : public Provider {
 public:
  std::string_view name() const override { return "cpu"; }

  Verdict can_run(const Node& node) const override {
    if (!known_tensors(node)) return Verdict::no("an operand is not a tensor");
    const Verdict tile = fits_tile(node);
    if (tile) return tile;
    Verdict why;
    if (kernel_table().choose(node, &why)) return Verdict::yes();
    if (!lowers(node)) return kernel_table().find(node.qualified()) ? why : tile;
    if (!kernel_table().find(node.qualified())) return Verdict::no("tile program: " + tile.reason);
    return Verdict::no("tile program: " + tile.reason + "; " + why.reason);
  }

  std::vector<Region> claim(Graph& graph, const Claimed& claimed) const override {
    Verdict why;
    const auto free = [&](const Node& node) { return !claimed.taken(node) && known_tensors(node); };
    std::vector<Region> regions;
    const auto tiled = [&](const Node& node) { return free(node) && fits_tile(node); };
    for (std::vector<Node*>& nodes : grow_regions(graph, tiled, fit_together))
      regions.push_back(tile_region(std::move(nodes)));
    for (Node* node : graph.order()) {
      if (!free(*node) || fits_tile(*node) || !kernel_table().choose(*node, &why)) continue;
      regions.push_back(region_of(*node));
      regions.back().kind = "kernel";
    }
    return regions;
  }

  // Every error names a node: a library's does not.
  Prepared prepare(const Region& region, const Binding& binding) const override {
    try {
      return region.kind == "tile" ? prepare_tile(region, binding) : choose(region, binding);
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with('[')) throw;
      const Node& node = *region.nodes[0];
      fail("[{}] {}; {}", node.qualified(), error.what(), node.describe());
    }
  }

 private:
  static std::unique_ptr<Kernel> choose(const Region& region, const Binding& binding) {
    check(region.nodes.size() == 1, "a cpu kernel runs one node, the region has {}",
          region.nodes.size());
    const Node& node = *region.nodes[0];
    Verdict why;
    const KernelList::Entry* first = kernel_table().choose(node, &why);
    check(first != nullptr, "[{}] {}", node.describe(), why.reason);
    // A kernel may still decline the concrete sizes: the next one takes them.
    for (const KernelList::Entry& entry : kernel_table().find(node.qualified())->entries()) {
      if (!entry.when(node)) continue;
      if (auto kernel = entry.make(Request(node, binding))) return kernel;
    }
    fail("[{}] no kernel takes these sizes; {}", node.qualified(), node.describe());
  }
};

[[maybe_unused]] const bool registered = [] {
  register_provider(std::make_unique<CpuProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::cpu
