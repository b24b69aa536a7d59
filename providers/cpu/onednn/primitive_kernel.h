// A kernel around one primitive of oneDNN.
#pragma once

#include <functional>

#include "csrc/core/cache.h"
#include "providers/cpu/onednn/onednn.h"

namespace ort::cpu {

// A constant in the layout that a primitive wants.
class PackedMemory final : public Pack {
 public:
  PackedMemory(const Constant& constant, dnnl::memory::desc desc, const dnnl::memory::desc& wanted);
  const dnnl::memory& memory() const { return memory_; }
  void unpack(void* to) const override;
  // Weights of bytes have sums beside them, from which there is no way back.
  bool gives_back() const;

 private:
  dnnl::memory::desc desc_;  // of the constant
  Tensor bytes_;
  dnnl::memory memory_;
};

// Made once for all kernels that hold it. The constant stays while one of them does.
std::shared_ptr<const PackedMemory> packed(const Constant& constant, const dnnl::memory::desc& desc,
                                           const dnnl::memory::desc& wanted);

// One primitive and where its arguments come from. An argument whose layout the primitive wants
// otherwise lies so outside where it may; a constant is packed once; others go through scratch
// memory and a reorder.
class PrimitiveKernel final : public Kernel {
 public:
  struct Argument {
    int id;                   // DNNL_ARG_...
    dnnl::memory::desc desc;  // as it lies outside
    bool output;
    size_t index;                    // in Args::in or Args::out
    dnnl::memory::desc wanted = {};  // by the primitive; empty: as it lies
    bool any_layout = false;         // it may lie as it is wanted
    Constant constant = {};
    size_t scratch = 0;  // where the reordered copy goes
    dnnl::reorder reorder = {};
    std::shared_ptr<const PackedMemory> pack = {};
  };
  // An activation that is not the primitive's last post-op, or is one that is wrong for NaN or
  // infinities: where it met such, what `bare` makes runs in the primitive's place, and then code
  // of our own.
  struct Bare {
    dnnl::primitive primitive;
    dnnl::memory::desc scratchpad;
  };
  struct After {
    Activation activation;
    std::function<Bare()> bare;  // empty: the primitive is without it
  };
  PrimitiveKernel(dnnl::primitive primitive, dnnl::memory::desc scratchpad,
                  std::vector<Argument> arguments, std::string name,
                  std::optional<After> after = {});
  void run(const Args& args) const override;
  size_t scratch_bytes() const override { return scratch_; }
  std::string name() const override { return name_; }
  std::shared_ptr<const Pack> pack(size_t in) const override;
  Layout layout_of_input(size_t in) const override { return layout_of_operand(in, false); }
  Layout layout_of_output(size_t out) const override { return layout_of_operand(out, true); }

 private:
  Layout layout_of_operand(size_t index, bool output) const;
  bool reordered(const Argument& a) const { return !a.wanted.is_zero(); }
  using Memories = std::unordered_map<int, dnnl::memory>;
  void execute(Memories& memories) const;
  void run_bare(Memories& memories) const;
  void activate_result(const Memories& memories) const;
  size_t scratch_ = 0;
  dnnl::primitive primitive_;
  dnnl::memory::desc scratchpad_;
  std::vector<Argument> arguments_;
  std::string name_;
  std::optional<After> after_;
  mutable Once made_;
  mutable Bare bare_;  // made when it is first needed
};

template <class Primitive, class F>
std::optional<PrimitiveKernel::After> after(const ActivationPlaces& places, F described) {
  if (places.after) return PrimitiveKernel::After{places.after, nullptr};
  if (!wrong_for_nan_or_inf(places.post_op)) return std::nullopt;
  return PrimitiveKernel::After{places.post_op, [described] {
                                  const auto bare = described(Activation{});
                                  return PrimitiveKernel::Bare{Primitive(bare),
                                                               bare.scratchpad_desc()};
                                }};
}

}  // namespace ort::cpu
