// ReferenceProvider: looks the op up in the table of kernels; every node is a region of its own.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

const KernelTable& kernel_table() {
  static const KernelTable table = [] {
    KernelTable table("reference");
    Family<KernelTable>::add_all("reference", table);
    return table;
  }();
  return table;
}

class ReferenceProvider final : public Provider {
 public:
  std::string_view name() const override { return "reference"; }

  Verdict can_run(const Node& node) const override { return kernel_table().can_run(node); }

  Prepared prepare(const Region& region, const Binding& binding) const override {
    check(region.nodes.size() == 1, "the reference provider runs one node at a time, got {}",
          region.nodes.size());
    return kernel_table().prepare(*region.nodes[0], binding);
  }
};

const bool kRegistered = [] {
  register_provider(std::make_unique<ReferenceProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::reference
