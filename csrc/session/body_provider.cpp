// Between a plan's memory and the items that bodies take and give.
#include "csrc/session/body_provider.h"

#include <cstring>
#include <mutex>

#include "csrc/session/body_kernel.h"

namespace ort {
namespace {

// Compiled once for all sizes: what a region keeps.
struct CompiledBody {
  std::once_flag once;
  std::shared_ptr<const BodyKernel> kernel;
};

bool is_placed(const Type& type) {
  return type.kind == Type::Kind::opaque || (type.is_tensor() && type.dtype != DType::string);
}

class PlacedBodies final : public Kernel {
 public:
  PlacedBodies(const Node& node, const Binding& binding, std::shared_ptr<const BodyKernel> bodies)
      : name_(node.qualified()),
        in_(binding.in),
        out_(binding.out),
        symbols_(*binding.symbols),
        bodies_(std::move(bodies)) {}

  void run(const Args& args) const override {
    std::vector<Item> items;
    for (size_t i = 0; i < in_.size(); ++i) items.push_back(item_of(args.in[i], in_[i]));
    RunState without_limits;
    std::vector<Item> results =
        bodies_->run(items, symbols_, args.run ? *args.run : without_limits);
    for (size_t i = 0; i < out_.size(); ++i)
      if (out_[i].present && args.out[i]) store(results.at(i), args.out[i], i);
  }
  std::string name() const override { return name_; }

 private:
  // An object is taken out of its slot: what reads it last frees it as it goes.
  static Item item_of(void* data, const Operand& operand) {
    if (!operand.present) return {};
    if (operand.layout.is_opaque())
      return Opaque(std::move(*static_cast<std::shared_ptr<void>*>(data)));
    return Tensor{operand.dtype, operand.sizes, data, nullptr};
  }

  void store(Item& result, void* data, size_t i) const {
    if (out_[i].layout.is_opaque()) {
      *static_cast<std::shared_ptr<void>*>(data) = std::move(std::get<Opaque>(result));
      return;
    }
    const Tensor& tensor = result.tensor();
    check(tensor.dtype == out_[i].dtype && tensor.sizes == out_[i].sizes,
          "[{}] its graph gave result {} as {} {}, expected {} {}", name_, i, tensor.dtype,
          tensor.sizes, out_[i].dtype, out_[i].sizes);
    if (tensor.bytes() > 0) std::memcpy(data, tensor.data, tensor.bytes());
  }

  std::string name_;
  std::vector<Operand> in_, out_;
  Symbols symbols_;
  std::shared_ptr<const BodyKernel> bodies_;
};

}  // namespace

Verdict BodyProvider::can_run(const Node& node) const {
  if (!node.owns_bodies()) return Verdict::no("it owns no graph");
  for (const auto* ids : {&node.in, &node.out})
    for (const ValueId id : *ids)
      if (id != kNone && !is_placed(node.graph->value(id).type()))
        return Verdict::no(
            format("{} has no place in a plan", node.graph->value(id).type().text()));
  return Verdict::yes();
}

std::vector<Region> BodyProvider::claim(Graph& graph, const Claimed& claimed) const {
  std::vector<Region> regions = Provider::claim(graph, claimed);
  for (Region& region : regions) region.kept = std::make_shared<CompiledBody>();
  return regions;
}

Prepared BodyProvider::prepare(const Region& region, const Binding& binding) const {
  const Node& node = *region.nodes.at(0);
  auto& kept = *static_cast<CompiledBody*>(region.kept.get());
  std::call_once(kept.once, [&] { kept.kernel = make_body_kernel(node, options_); });
  return std::make_unique<PlacedBodies>(node, binding, kept.kernel);
}

}  // namespace ort
