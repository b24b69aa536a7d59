// oneDNN behind one door: the engine, a stream for each thread, and its errors as ours. oneDNN
// keeps primitives of equal descriptors in a process-wide cache of its own. Only .cpp files that
// run primitives include this.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

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

// The eltwise post-op of an activation; none for none.
void append_activation(dnnl::post_ops& ops, Epilogue activation);

// Runs f, turning dnnl::error into ort::Error.
template <class F>
auto with_onednn(const char* what, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    fail("oneDNN refuses {}: {} (status {})", what, error.what(), static_cast<int>(error.status));
  }
}

// One primitive and where its arguments come from. An argument whose layout the primitive wants
// otherwise goes through scratch memory and a reorder.
class PrimitiveKernel final : public Kernel {
 public:
  struct Argument {
    int id;                   // DNNL_ARG_...
    dnnl::memory::desc desc;  // as it lies outside
    bool output;
    size_t index;                    // in Args::in or Args::out
    dnnl::memory::desc wanted = {};  // by the primitive; empty: as it lies
    size_t scratch = 0;              // where the reordered copy goes
    dnnl::reorder reorder = {};
  };
  PrimitiveKernel(dnnl::primitive primitive, dnnl::memory::desc scratchpad,
                  std::vector<Argument> arguments, std::string name);
  void run(const Args& args) const override;
  size_t scratch_bytes() const override { return scratch_; }
  std::string name() const override { return name_; }

 private:
  bool reordered(const Argument& a) const { return !a.wanted.is_zero(); }
  size_t scratch_ = 0;
  dnnl::primitive primitive_;
  dnnl::memory::desc scratchpad_;
  std::vector<Argument> arguments_;
  std::string name_;
};

dnnl::primitive_attr user_scratchpad();  // attributes whose scratchpad comes from the plan

}  // namespace ort::cpu
