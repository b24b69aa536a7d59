// Between a plan's memory and the items that bodies and functions take and give.
#include "csrc/program/item_provider.h"

#include <cstring>

#include "csrc/core/cache.h"
#include "csrc/program/body_kernel.h"

namespace ort {
namespace {

// Compiled once for all sizes: what a region keeps.
struct Compiled {
  Once once;
  ItemCall call;
};

bool on_device(const Type& type) {
  return type.kind == Type::Kind::opaque || (type.is_tensor() && type.dtype != DType::string);
}

class PlacedItems final : public Kernel {
 public:
  PlacedItems(const Node& node, const Binding& binding, ItemCall call)
      : name_(node.qualified()),
        in_(binding.in),
        out_(binding.out),
        symbols_(*binding.symbols),
        call_(std::move(call)) {}

  void run(const Args& args) const override {
    std::vector<Item> items;
    for (size_t i = 0; i < in_.size(); ++i) items.push_back(item_of(args.in[i], in_[i]));
    RunState without_limits;
    std::vector<Item> results = call_(items, symbols_, args.run ? *args.run : without_limits);
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
          "[{}] result {} is {} {}, expected {} {}", name_, i, tensor.dtype, tensor.sizes,
          out_[i].dtype, out_[i].sizes);
    if (tensor.bytes() > 0) std::memcpy(data, tensor.data, tensor.bytes());
  }

  std::string name_;
  std::vector<Operand> in_, out_;
  Symbols symbols_;
  ItemCall call_;
};

}  // namespace

Verdict ItemProvider::can_run(const Node& node) const {
  if (!node.owns_bodies() && !node.schema->function())
    return Verdict::no("it owns no graph, and no function was given for it");
  for (const auto* ids : {&node.in, &node.out})
    for (const ValueId id : *ids)
      if (id != kNone && !on_device(node.graph->value(id).type()))
        return Verdict::no(
            format("{} has no place in a plan", node.graph->value(id).type().text()));
  return Verdict::yes();
}

std::vector<Region> ItemProvider::claim(Graph& graph, const Claimed& claimed) const {
  std::vector<Region> regions = Provider::claim(graph, claimed);
  for (Region& region : regions) region.kept = std::make_shared<Compiled>();
  return regions;
}

Prepared ItemProvider::prepare(const Region& region, const Binding& binding) const {
  const Node& node = *region.nodes.at(0);
  auto& kept = *static_cast<Compiled*>(region.kept.get());
  kept.once.call([&] { kept.call = make_item_call(node, options_); });
  return std::make_unique<PlacedItems>(node, binding, kept.call);
}

}  // namespace ort
