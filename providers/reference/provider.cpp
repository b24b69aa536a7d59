// ReferenceProvider: looks the op up in the table of kernels; every node is a region of its own.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

const KernelTable& kernel_table() {
  static const KernelTable table = [] {
    KernelTable table("reference");
    register_elementwise(table);
    register_cast(table);
    register_activation(table);
    register_logic(table);
    register_matmul(table);
    register_norm(table);
    register_softmax(table);
    register_loss(table);
    register_reduce(table);
    register_shape(table);
    register_slice(table);
    register_index(table);
    register_conv(table);
    register_pool(table);
    register_rnn(table);
    register_random(table);
    register_collective(table);
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
