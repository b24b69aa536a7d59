// The aten provider: operators of torch that the engine has no op for, and collectives by torch's
// groups. Part of the module _torch; it registers itself when that loads.
#include <ATen/core/dispatch/Dispatcher.h>

#include "providers/aten/collective.h"
#include "providers/aten/operator.h"

namespace ort::aten {
namespace {

class AtenProvider final : public Provider {
 public:
  std::string_view name() const override { return "aten"; }

  Verdict can_run(const Node& node) const override {
    if (node.domain() != "aten") return is_collective(node);
    const auto [name, overload] = name_of_operator(node);
    const bool known = c10::Dispatcher::singleton().findSchema({name, overload}).has_value();
    return require(known, "torch has no operator {}", node.attrs.s("schema"));
  }

  Device device(Device home) const override { return home; }

  Prepared prepare(const Region& region, const Binding& binding) const override {
    const Node& node = *region.nodes.at(0);
    if (node.domain() != "aten") return prepare_collective(node, binding);
    return node.op == "backward" ? prepare_backward(node, binding)
                                 : prepare_operator(node, binding);
  }
};

const bool kRegistered = [] {
  register_provider(std::make_unique<AtenProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::aten
