// The table of a provider's kernels: by op, best first, each with the dtypes it computes in and the
// condition it needs. A provider's family files fill it; its can_run and prepare ask it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/core/families.h"
#include "providers/provider.h"

namespace ort {

// What a kernel is made from: one node and its operands' concrete types.
class Request {
 public:
  Request(const Node& node, const Binding& binding) : node_(node), binding_(binding) {}
  const Node& node() const { return node_; }
  const Binding& binding() const { return binding_; }
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

// --- dtypes ---
// A kernel's set ranges over the numbers of its op: the operands whose ports have the letter T (all
// operands where none has, as of Cast) and whatever else is floating, a mask that is added, say.
// Integers and bools beside them (indices, axes, lengths, keys) are as the schema has them.
constexpr TypeSet kF32 = bit(DType::f32);
constexpr TypeSet kF64 = bit(DType::f64);
constexpr TypeSet kHalves = bit(DType::f16) | bit(DType::bf16);
constexpr TypeSet kPlain = kF32 | kF64 | kIntegers | kBool;  // what C++ computes with
constexpr TypeSet kNumbers = kPlain | kFloating;             // and halves
std::string text(TypeSet types);                             // "float32, integers or bool"
Verdict fits(TypeSet types, const Node& node);

using When = std::function<Verdict(const Node&)>;
// Null where the kernel declines the sizes: the next of its op takes them.
using Make = std::function<std::unique_ptr<Kernel>(const Request&)>;

// The kernels of one op, best first.
class KernelList {
 public:
  struct Entry {
    std::string name;
    TypeSet types;
    When when;
    Make make;
  };
  KernelList& add(std::string name, TypeSet types, When when, Make make) {
    entries_.push_back({std::move(name), types, std::move(when), std::move(make)});
    return *this;
  }
  KernelList& add(std::string name, TypeSet types, Make make) {
    return add(std::move(name), types, nullptr, std::move(make));
  }
  const std::vector<Entry>& entries() const { return entries_; }
  // Kernels of the op may take what is not row-major.
  KernelList& take_layouts() {
    takes_layouts_ = true;
    return *this;
  }
  bool takes_layouts() const { return takes_layouts_; }

 private:
  std::vector<Entry> entries_;
  bool takes_layouts_ = false;
};

class KernelTable {
 public:
  explicit KernelTable(std::string provider) : provider_(std::move(provider)) {}
  KernelList& op(std::string_view qualified) { return lists_[std::string(qualified)]; }
  bool has(std::string_view qualified) const { return find(qualified) != nullptr; }
  bool takes_layouts(std::string_view qualified) const {
    const KernelList* list = find(qualified);
    return list && list->takes_layouts();
  }
  // Yes where a kernel takes the node, else every kernel's reason.
  Verdict can_run(const Node& node) const;
  // Of the first kernel that takes the node and these sizes; an error where none does.
  std::unique_ptr<Kernel> prepare(const Node& node, const Binding& binding) const;

 private:
  const KernelList* find(std::string_view qualified) const;

  std::string provider_;
  std::map<std::string, KernelList, std::less<>> lists_;
};

// No unless every operand is a tensor: what kernels of a table take.
Verdict only_tensors(const Node& node);

// --- kernels made of a function ---
struct FunctionTraits {
  size_t scratch = 0;
  int over = -1;                    // the input that output 0 may be written over; -1: none
  std::vector<Layout> in{}, out{};  // by number; those beyond are row-major
};

template <class F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string name, F f, FunctionTraits traits)
      : name_(std::move(name)), f_(std::move(f)), traits_(std::move(traits)) {}
  void run(const Args& args) const override { f_(args); }
  size_t scratch_bytes() const override { return traits_.scratch; }
  bool in_place(size_t in, size_t out) const override {
    return static_cast<int>(in) == traits_.over && out == 0;
  }
  Layout layout_of_input(size_t in) const override { return at(traits_.in, in); }
  Layout layout_of_output(size_t out) const override { return at(traits_.out, out); }
  std::string name() const override { return name_; }

 private:
  static Layout at(const std::vector<Layout>& layouts, size_t i) {
    return i < layouts.size() ? layouts[i] : Layout();
  }

  std::string name_;
  F f_;
  FunctionTraits traits_;
};

template <class F>
std::unique_ptr<Kernel> make_kernel(std::string name, F f, FunctionTraits traits) {
  return std::make_unique<FunctionKernel<F>>(std::move(name), std::move(f), std::move(traits));
}

template <class F>
std::unique_ptr<Kernel> make_kernel(std::string name, F f, size_t scratch = 0, int over = -1) {
  return make_kernel(std::move(name), std::move(f), FunctionTraits{scratch, over});
}

// Of operands in these layouts.
template <class F>
std::unique_ptr<Kernel> make_kernel(std::string name, F f, std::vector<Layout> in,
                                    std::vector<Layout> out, size_t scratch = 0, int over = -1) {
  return make_kernel(std::move(name), std::move(f),
                     FunctionTraits{scratch, over, std::move(in), std::move(out)});
}

// Elements of an integer operand.
std::vector<int64_t> read_ints(const Operand& operand, const void* data);

// Row-major strides in elements; those that read `sizes` at each index of `to`, which it broadcasts
// to, are 0 on its axes of size 1.
Sizes strides_of(const Sizes& sizes);
Sizes broadcast_strides(const Sizes& sizes, const Sizes& to);

// An attribute of type Dims as numbers.
Sizes evaluate(const Dims& dims, const Symbols* symbols);

template <class T>
const T* input(const Args& args, size_t i) {
  return static_cast<const T*>(args.in[i]);
}
template <class T>
T* output(const Args& args, size_t i = 0) {
  return static_cast<T*>(args.out[i]);
}

}  // namespace ort
