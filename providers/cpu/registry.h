// The table of the CPU provider's kernels: by op, best first, each with the condition it needs. The
// family files fill it; cpu.cpp reads it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "providers/provider.h"

namespace ort::cpu {

// What a kernel is made from: one node and its operands' concrete types.
class Request {
 public:
  Request(const Node& node, const Binding& binding) : node_(node), binding_(binding) {}
  const Node& node() const { return node_; }
  const Attrs& attrs() const { return node_.attrs; }
  bool has(size_t i) const { return i < binding_.in.size() && binding_.in[i].present; }
  bool wants(size_t i) const { return i < binding_.out.size() && binding_.out[i].present; }
  const Operand& in(size_t i) const { return binding_.in.at(i); }
  const Operand& out(size_t i = 0) const { return binding_.out.at(i); }
  const Sizes& sizes(size_t i) const { return in(i).sizes; }
  size_t inputs() const { return binding_.in.size(); }
  size_t outputs() const { return binding_.out.size(); }
  // Elements of an integer operand, when they are known before the run.
  std::optional<std::vector<int64_t>> ints(size_t i) const;
  Sizes dims(std::string_view attr) const;  // of type Dims, under the binding
  int64_t axis(std::string_view attr, int64_t rank) const;
  template <class... Args>
  [[noreturn]] void refuse(std::string_view text, const Args&... args) const {
    fail("[{}] {}; {}", node_.qualified(), format(text, args...), node_.describe());
  }

 private:
  const Node& node_;
  const Binding& binding_;
};

using When = std::function<Verdict(const Node&)>;
using Make = std::function<std::unique_ptr<Kernel>(const Request&)>;

class KernelList {
 public:
  struct Entry {
    std::string name;
    When when;
    Make make;
  };
  KernelList& add(std::string name, When when, Make make) {
    entries_.push_back({std::move(name), std::move(when), std::move(make)});
    return *this;
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

class KernelTable {
 public:
  KernelList& op(std::string_view qualified) { return lists_[std::string(qualified)]; }
  const KernelList* find(std::string_view qualified) const;
  const KernelList::Entry* choose(const Node& node, Verdict* why) const;

 private:
  std::map<std::string, KernelList, std::less<>> lists_;
};

// --- conditions ---
Verdict always(const Node& node);
Verdict floats(const Node& node);       // every operand that may be floating is float32
Verdict fixed_width(const Node& node);  // operands with a size in bytes: no strings
Verdict numbers(const Node& node);      // dtypes that C++ computes with: no strings, no halves

// --- kernels made of a function ---
template <class F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string name, F f, size_t scratch)
      : name_(std::move(name)), f_(std::move(f)), scratch_(scratch) {}
  void run(const Args& args) const override { f_(args); }
  size_t scratch_bytes() const override { return scratch_; }
  std::string name() const override { return name_; }

 private:
  std::string name_;
  F f_;
  size_t scratch_;
};

template <class F>
std::unique_ptr<Kernel> make_kernel(std::string name, F f, size_t scratch = 0) {
  return std::make_unique<FunctionKernel<F>>(std::move(name), std::move(f), scratch);
}

// Row-major strides in elements; a size-1 axis has stride 0 when `broadcast_to` is given.
Sizes strides_of(const Sizes& sizes);
Sizes broadcast_strides(const Sizes& sizes, const Sizes& to);

template <class T>
const T* input(const Args& args, size_t i) {
  return static_cast<const T*>(args.in[i]);
}
template <class T>
T* output(const Args& args, size_t i = 0) {
  return static_cast<T*>(args.out[i]);
}

}  // namespace ort::cpu
