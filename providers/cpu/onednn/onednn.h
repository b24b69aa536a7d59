// oneDNN behind one door: the engine, a stream for each thread, and its errors as ours. oneDNN
// keeps primitives of equal descriptors in a process-wide cache of its own. Only .cpp files that
// run primitives include this.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "providers/cpu/epilogue.h"
#include "providers/kernel_table.h"

namespace ort::cpu {

const dnnl::engine& cpu_engine();
dnnl::stream& cpu_stream();  // of the calling thread

dnnl::memory::data_type onednn_type(DType dtype);  // of float32, halves, bytes and int32
// Row-major; rank 0 becomes [1].
dnnl::memory::desc dense_desc(const Sizes& sizes, DType dtype = DType::f32);

// Whether oneDNN has a kernel for it on this machine, made with allow_empty, beside two that are
// not run: its reference implementation, which is correct and a hundred times slower, and what
// calls its gemm, whose code points the stack pointer into the heap, so that a signal would write
// there.
bool is_own(const dnnl::primitive_desc_base& description);

// The first implementation that does not call oneDNN's gemm, its reference where there is no other;
// false: there is none.
template <class Description>
bool without_gemm(Description& description) {
  const auto calls_gemm = [&] {
    return std::string_view(description.impl_info_str()).find("gemm") != std::string_view::npos;
  };
  while (description.get(true) && calls_gemm())
    if (!description.next_impl()) return false;
  return description.get(true) != nullptr;
}

// No where the processor adds products of bytes in 16 bits, as oneDNN has it do without VNNI.
Verdict adds_bytes_exactly(const Node& node);

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
// Without padding: as a value of the plan's a padded one would take more memory.
bool is_compact(const dnnl::memory::desc& desc);
// Whether the bytes are those of a row-major value, as those of blocks of channels at one position.
bool is_row_major(const dnnl::memory::desc& desc);
// The description of an operand as it lies before its kernel; of a plain one that of dense_desc.
dnnl::memory::desc desc_of(const Operand& operand);

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
dnnl::primitive_attr user_scratchpad();  // attributes whose scratchpad comes from the plan

}  // namespace ort::cpu
