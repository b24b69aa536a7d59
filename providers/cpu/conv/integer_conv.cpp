// Convolutions of bytes by oneDNN, with sums of 32 bits.
#include "providers/cpu/conv/convolution.h"
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

dnnl::memory::desc last_channels(const Sizes& sizes, DType dtype) {
  return {sizes, onednn_type(dtype), channels_last_tag(sizes.size())};
}

std::unique_ptr<Kernel> integer_conv(const Request& r) {
  Convolution p = convolution_of(r, r.sizes(0), r.sizes(1), r.out().sizes);
  if (is_empty(p)) return conv_of_nothing(r);
  return with_onednn("a convolution of bytes", [&]() -> std::unique_ptr<Kernel> {
    const DType x = r.in(0).dtype, w = r.in(1).dtype, y = r.out().dtype;
    const dnnl::memory::desc any{grouped(p), onednn_type(w), dnnl::memory::format_tag::any};
    dnnl::convolution_forward::primitive_desc description(
        cpu_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
        last_channels(p.x, x), any, last_channels(p.y, y), p.window.strides,
        less_one(p.window.dilations), p.window.before, p.window.after, user_scratchpad(), true);
    if (!without_gemm(description)) return nullptr;
    std::vector<PrimitiveKernel::Argument> arguments{
        {DNNL_ARG_SRC, dense_desc(p.x, x), false, 0, description.src_desc(),
         r.in(0).comes_blocked()},
        {DNNL_ARG_WEIGHTS, dense_desc(grouped(p), w), false, 1, description.weights_desc(), false,
         r.in(1).constant},
        {DNNL_ARG_DST, dense_desc(p.y, y), true, 0, description.dst_desc(), r.out().any_layout}};
    return std::make_unique<PrimitiveKernel>(dnnl::convolution_forward(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             r.node().op);
  });
}

Verdict fits_onednn(const Node& node) {
  const Verdict exact = adds_bytes_exactly(node);
  return exact ? has_spatial_axes(node) : exact;
}

}  // namespace

static void register_integer_conv(KernelTable& table) {
  table.op("ort::IntegerConv")
      .take_layouts()
      .add("onednn", bit(DType::i8) | bit(DType::u8) | bit(DType::i32), fits_onednn, integer_conv);
}

const Family<KernelTable> kIntegerConvKernels("cpu", "integer_conv", register_integer_conv);

}  // namespace ort::cpu
