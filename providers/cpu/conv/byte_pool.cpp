// Maxima over windows of bytes by oneDNN, with the channels last.
#include <algorithm>

#include "providers/cpu/conv/window.h"
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

std::unique_ptr<Kernel> byte_max_pool(const Request& r) {
  const Sizes &x = r.sizes(0), &y = r.out().sizes;
  const std::vector<int64_t>& kernel = r.attrs().ints("kernel_shape");
  const Window window = window_of(r, x, y, Sizes(kernel.begin(), kernel.end()));
  if (element_count(y) == 0) return make_kernel("MaxPool", [](const Args&) {});
  return with_onednn("maxima of bytes", [&]() -> std::unique_ptr<Kernel> {
    const DType dtype = r.in(0).dtype;
    const auto last = [&](const Sizes& sizes) {
      return dnnl::memory::desc(sizes, onednn_type(dtype), channels_last_tag(sizes.size()));
    };
    Sizes gaps = window.dilations, after = window.after;
    for (size_t i = 0; i < gaps.size(); ++i) {
      --gaps[i];
      const int64_t end = (y[2 + i] - 1) * window.strides[i] + window.reach(i);
      after[i] = std::max(after[i], end - x[2 + i] - window.before[i]);  // of ceil_mode
    }
    dnnl::pooling_forward::primitive_desc description(
        cpu_engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::pooling_max, last(x),
        last(y), window.strides, Sizes(kernel.begin(), kernel.end()), gaps, window.before, after,
        user_scratchpad(), true);
    if (!without_gemm(description)) return nullptr;
    std::vector<PrimitiveKernel::Argument> arguments{
        {DNNL_ARG_SRC, dense_desc(x, dtype), false, 0, last(x), r.in(0).comes_blocked()},
        {DNNL_ARG_DST, dense_desc(y, dtype), true, 0, last(y), r.out().any_layout}};
    return std::make_unique<PrimitiveKernel>(dnnl::pooling_forward(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             "MaxPool");
  });
}

Verdict maxima_alone(const Node& node) {
  const auto& dims = node.input(0).type().dims;
  if (node.out.size() > 1 && node.out[1] != kNone) return Verdict::no("it gives places too");
  return require(dims && dims->size() >= 3 && dims->size() <= 5,
                 "expected 1 to 3 spatial axes of known rank");
}

}  // namespace

static void register_byte_pool(KernelTable& table) {
  table.op("MaxPool").add("onednn", bit(DType::i8) | bit(DType::u8), maxima_alone, byte_max_pool);
}

const Family<KernelTable> kBytePoolKernels("cpu", "byte_pool", register_byte_pool);

}  // namespace ort::cpu
