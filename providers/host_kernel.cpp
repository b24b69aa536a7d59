// The table of functions that allocate their results.
#include "providers/host_kernel.h"

#include "providers/kernel_table.h"

namespace ort {
namespace {

const HostTable& table() {
  static const HostTable* table = [] {
    auto* made = new HostTable();
    Family<HostTable>::add_all("host", *made);
    return made;
  }();
  return *table;
}

// Of an op that a user gave.
class GivenHostKernel final : public HostKernel {
 public:
  explicit GivenHostKernel(const Node& node) : node_(node) {}
  std::vector<Item> run(std::span<Item> in) const override {
    return node_.schema->function()(node_, in);
  }

 private:
  const Node& node_;
};

class FunctionHostKernel final : public HostKernel {
 public:
  FunctionHostKernel(const Node& node, const HostFunction& f) : node_(node), f_(f) {}
  std::vector<Item> run(std::span<Item> in) const override { return f_({node_, in}); }

 private:
  const Node& node_;
  const HostFunction& f_;
};

}  // namespace

std::unique_ptr<HostKernel> make_host_kernel(const Node& node) {
  if (node.schema->function()) return std::make_unique<GivenHostKernel>(node);
  const auto found = table().find(node.qualified());
  check(found != table().end(), "[{}] nothing runs it on {}; {}", node.qualified(),
        node.has_input(0) ? node.input(0).type().text() : "nothing", node.describe());
  const Verdict verdict = fits(found->second.types, node);
  check(verdict.ok, "[{}] {}; {}", node.qualified(), verdict.reason, node.describe());
  return std::make_unique<FunctionHostKernel>(node, found->second.run);
}

int64_t HostCall::number(size_t i) const {
  require(tensor(i).count() == 1, "input {} has shape {}, expected one element", i,
          tensor(i).sizes);
  return element_as_int(tensor(i), 0);
}

int64_t HostCall::axis(int64_t axis, size_t rank) const {
  const int64_t count = static_cast<int64_t>(rank);
  require(axis >= -count && axis < count, "axis {} does not exist, the input has rank {}", axis,
          count);
  return axis < 0 ? axis + count : axis;
}

int64_t HostCall::position(size_t i, int64_t end, int64_t size) const {
  if (!has(i)) return end;
  const int64_t given = number(i), at = given < 0 ? given + size : given;
  require(at >= 0 && at <= end, "position {} is not in a sequence of {}", given, size);
  return at;
}

}  // namespace ort
