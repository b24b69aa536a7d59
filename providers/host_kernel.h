// Kernels of what cannot be placed beforehand: they take items and allocate what they give, where
// sizes or kinds of results are known only when they have run.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/core/families.h"
#include "csrc/core/item.h"
#include "csrc/graph/schema.h"

namespace ort {

class HostKernel {
 public:
  virtual ~HostKernel() = default;
  // An item for each output of the node; an absent input is empty.
  // What it changes it takes out of `in`.
  virtual std::vector<Item> run(std::span<Item> in) const = 0;
};

// What a kernel that is a function sees: the node and the items of a call.
class HostCall {
 public:
  HostCall(const Node& node, std::span<Item> in) : node_(node), in_(in) {}
  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  size_t count() const { return in_.size(); }
  bool has(size_t i) const { return i < in_.size() && in_[i].present(); }
  const Item& item(size_t i) const { return in_[i]; }
  const Tensor& tensor(size_t i = 0) const { return in_[i].tensor(); }
  const std::vector<Item>& items(size_t i = 0) const { return in_[i].items(); }
  Sequence take(size_t i = 0) const { return std::move(std::get<Sequence>(in_[i])); }
  int64_t number(size_t i) const;                               // of one element
  int64_t axis(int64_t axis, size_t rank) const;                // normalised and checked
  int64_t position(size_t i, int64_t end, int64_t size) const;  // in a sequence; absent: the end
  template <class... Args>
  void require(bool condition, std::string_view text, const Args&... args) const {
    if (!condition) fail("[{}] {}; {}", node_.qualified(), format(text, args...), node_.describe());
  }

 private:
  const Node& node_;
  std::span<Item> in_;
};

using HostFunction = std::function<std::vector<Item>(const HostCall&)>;
// By op: the dtypes that its numbers may have, as in a KernelTable, and what runs it.
struct HostEntry {
  TypeSet types;
  HostFunction run;
};
using HostTable = std::map<std::string, HostEntry, std::less<>>;

// The kernel refers to the node. Throws where none takes its op and its dtypes.
std::unique_ptr<HostKernel> make_host_kernel(const Node& node);

}  // namespace ort
