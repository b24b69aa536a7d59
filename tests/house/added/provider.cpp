// A provider of one op, for test_additions.py: ort::Radians in float32.
#include "providers/provider.h"

namespace ort::tenth {
namespace {

class Radians final : public Kernel {
 public:
  explicit Radians(int64_t count) : count_(count) {}
  void run(const Args& args) const override {
    const auto* x = static_cast<const float*>(args.in[0]);
    auto* y = static_cast<float*>(args.out[0]);
    for (int64_t i = 0; i < count_; ++i) y[i] = x[i] * 0.017453292519943295f;
  }
  std::string name() const override { return "radians"; }

 private:
  int64_t count_;
};

class TenthProvider final : public Provider {
 public:
  std::string_view name() const override { return "tenth"; }
  Verdict can_run(const Node& node) const override {
    if (!node.is("ort::Radians")) return Verdict::no("it runs ort::Radians alone");
    return require(node.input(0).dtype() == DType::f32, "x is {}", node.input(0).type().text());
  }
  Prepared prepare(const Region&, const Binding& binding) const override {
    return std::make_unique<Radians>(element_count(binding.out.at(0).sizes));
  }
};

const bool kRegistered = [] {
  register_provider(std::make_unique<TenthProvider>());
  return true;
}();

}  // namespace
}  // namespace ort::tenth
