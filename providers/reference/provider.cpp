// ReferenceProvider: looks the op up in the table of kernels; every node is a region of its own.
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

const Kernels& kernels() {
  static const Kernels table = [] {
    Kernels kernels;
    register_elementwise(kernels);
    register_activation(kernels);
    register_logic(kernels);
    register_matmul(kernels);
    register_norm(kernels);
    register_softmax(kernels);
    register_loss(kernels);
    register_reduce(kernels);
    register_shape(kernels);
    register_slice(kernels);
    register_index(kernels);
    register_conv(kernels);
    register_pool(kernels);
    register_rnn(kernels);
    register_random(kernels);
    return kernels;
  }();
  return table;
}

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(Site site, const Kernels::Entry& entry) : site_(std::move(site)), entry_(entry) {}
  void run(const Args& args) const override { entry_.run(Call(site_, args)); }
  int alias_of(size_t out) const override { return entry_.view && out == 0 ? 0 : -1; }
  std::string name() const override { return site_.op; }

 private:
  Site site_;
  const Kernels::Entry& entry_;
};

// Attributes of type Dims become numbers: a kernel knows no symbols.
Attrs concrete(const Attrs& attrs, const Symbols* symbols) {
  Attrs result = attrs;
  for (const auto& [name, value] : attrs) {
    const Dims* dims = std::get_if<Dims>(&value);
    if (!dims) continue;
    Sizes sizes;
    for (const Dim& dim : *dims) sizes.push_back(dim.evaluate(symbols ? *symbols : Symbols{}));
    result.set(name, std::move(sizes));
  }
  return result;
}

bool has_kernel_type(const Value& value, bool moves) {
  const Type& type = value.type();
  if (type.kind != Type::Kind::tensor || size_of(type.dtype) == 0) return false;
  return moves || (!is_complex(type.dtype) && type.dtype != DType::string);
}

class ReferenceProvider final : public Provider {
 public:
  std::string_view name() const override { return "reference"; }

  Verdict can_run(const Node& node) const override {
    const Kernels::Entry* entry = kernels().find(node.qualified());
    if (!entry) return Verdict::no(format("no kernel for {}", node.qualified()));
    for (size_t i = 0; i < node.in.size(); ++i)
      if (node.has_input(i) && !has_kernel_type(node.input(i), entry->moves))
        return Verdict::no(format("input {} is {}", i, node.input(i).type().text()));
    for (size_t i = 0; i < node.out.size(); ++i)
      if (node.out[i] != kNone && !has_kernel_type(node.output(i), entry->moves))
        return Verdict::no(format("output {} is {}", i, node.output(i).type().text()));
    return entry->when ? entry->when(node) : Verdict::yes();
  }

  Prepared prepare(const Region& region, const Binding& binding) const override {
    check(region.nodes.size() == 1, "the reference provider runs one node at a time, got {}",
          region.nodes.size());
    const Node& node = *region.nodes[0];
    const Kernels::Entry* entry = kernels().find(node.qualified());
    check(entry != nullptr, "[{}] the reference provider has no kernel", node.qualified());
    Site site{node.qualified(), node.describe(), concrete(node.attrs, binding.symbols), binding.in,
              binding.out};
    return std::make_unique<ReferenceKernel>(std::move(site), *entry);
  }
};

const bool kRegistered = [] {
  register_provider(std::make_unique<ReferenceProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::reference
