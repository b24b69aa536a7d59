// oneDNN behind one door: the engine, a stream for each thread, and its errors as ours. oneDNN
// keeps primitives of equal descriptors in a process-wide cache of its own. Only .cpp files that
// run primitives include this.
#pragma once

#include <functional>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

#include "providers/cpu/epilogue.h"
#include "providers/kernel_table.h"

namespace ort::cpu {

const dnnl::engine& cpu_engine();
dnnl::stream& cpu_stream();  // of the calling thread

dnnl::memory::data_type onednn_type(DType dtype);  // of float32 and halves
// Row-major; rank 0 becomes [1].
dnnl::memory::desc dense_desc(const Sizes& sizes, DType dtype = DType::f32);

// Whether oneDNN has a kernel for it on this machine, made with allow_empty, beside two that are
// not run: its reference implementation, which is correct and a hundred times slower, and what
// calls its gemm, whose code points the stack pointer into the heap, so that a signal would write
// there.
bool is_own(const dnnl::primitive_desc_base& description);

// False where oneDNN's post-op is another function: LeakyRelu with alpha 0 (of infinities) and Clip
// with low > high.
bool is_post_op(const Activation& activation);
// The eltwise post-op of an activation; none for none.
void append_activation(dnnl::post_ops& ops, const Activation& activation);
// Whether oneDNN (3.2) has it wrong for these: its maxima lose a NaN, its gelu an infinity.
bool wrong_for_nan_or_inf(const Activation& activation);

// Runs f, turning dnnl::error into ort::Error.
template <class F>
auto with_onednn(const char* what, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    fail("oneDNN refuses {}: {} (status {})", what, error.what(), static_cast<int>(error.status));
  }
}

// How a value with this description lies.
Layout layout_of(const dnnl::memory::desc& desc);
// Of values of rank 3 to 5, [N, C, spatial axes..], that lie as [N, spatial axes.., C]; row-major
// where oneDNN moves none of the dtype.
Layout channels_last(const Sizes& sizes, DType dtype);
dnnl::memory::format_tag channels_last_tag(size_t rank);  // undef beside ranks 3 to 5
// The description of an operand as it lies before its kernel; of a plain one that of dense_desc.
dnnl::memory::desc desc_of(const Operand& operand);

// A constant in the layout that a primitive wants, made once for all kernels that hold it. `data`
// stays while one of them does.
std::shared_ptr<const dnnl::memory> packed(const void* data, const dnnl::memory::desc& desc,
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
    const void* constant = nullptr;
    size_t scratch = 0;  // where the reordered copy goes
    dnnl::reorder reorder = {};
    std::shared_ptr<const dnnl::memory> pack = {};
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
  mutable std::once_flag made_;
  mutable Bare bare_;  // made when it is first needed
};

// Where an activation runs: in the primitive, or over its result.
struct ActivationPlaces {
  Activation post_op, after;
};
ActivationPlaces places_of(const Activation& activation);

// Of a primitive that `described` gives the description of, with an activation or with none:
// whether it can run without, where it has to.
template <class F>
bool runs_bare(const ActivationPlaces& places, F described) {
  return !wrong_for_nan_or_inf(places.post_op) || is_own(described(Activation{}));
}
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

dnnl::primitive_attr user_scratchpad();  // attributes whose scratchpad comes from the plan

}  // namespace ort::cpu
