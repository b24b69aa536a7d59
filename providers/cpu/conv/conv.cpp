// Convolutions on oneDNN; by products in float64 and where oneDNN has no kernel that is run here. x
// and y may lie as oneDNN prefers; weights do so inside a kernel, a constant one once for all runs.
// A sum and an activation are post-ops, or go over the result.
#include "csrc/core/parallel.h"
#include "providers/cpu/conv/convolution.h"
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {
namespace {

using Argument = PrimitiveKernel::Argument;

// With x as it lies where the same implementation takes it so.
dnnl::convolution_forward::primitive_desc forward_over(Convolution p, const Operand& x) {
  p.comes_last = x.comes_with_channels_last();
  auto best = described(p, [&] { return forward_desc(p); });
  if (!x.comes_blocked() || !is_own(best)) return best;
  p.given = desc_of(x);
  if (best.src_desc() == p.given) return best;
  const auto other = own_or_none([&] { return forward_desc(p); });
  const bool same =
      other && std::string_view(other->impl_info_str()) == std::string_view(best.impl_info_str());
  return same ? *other : best;
}

using ForwardDesc = dnnl::convolution_forward::primitive_desc;

std::string name_of(const Convolution& p) {
  return (p.sum ? "Conv+add" : "Conv") + suffix_of(p.activation);
}

// `plain`: all lie row-major outside.
std::vector<Argument> arguments_of(const Request& r, const Convolution& p, const ForwardDesc& d,
                                   bool plain) {
  const auto any = [&](const Operand& operand) { return !plain && operand.comes_blocked(); };
  std::vector<Argument> arguments{
      {DNNL_ARG_SRC, dense_desc(p.x, p.dtype), false, 0, d.src_desc(), any(r.in(0))},
      {DNNL_ARG_WEIGHTS, dense_desc(grouped(p), p.dtype), false, 1, d.weights_desc(), false,
       r.in(1).constant},
      {DNNL_ARG_DST, dense_desc(p.y, p.dtype), true, 0, d.dst_desc(),
       !plain && r.out().any_layout}};
  if (p.bias) arguments.push_back({DNNL_ARG_BIAS, dense_desc({p.y[1]}, p.dtype), false, 2});
  if (p.sum)
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                         dense_desc(p.y, p.dtype), false, 3, d.dst_desc(), any(r.in(3)),
                         r.in(3).constant});
  return arguments;
}

// Null where oneDNN has no kernel that is run here.
std::unique_ptr<Kernel> by_primitive(const Request& r, const Convolution& p, bool plain = false) {
  if (!is_post_op(p.activation) || !meets_image(p)) return nullptr;
  const ActivationPlaces places = places_of(p.activation);
  Convolution inner = p;
  inner.activation = places.post_op;
  return with_onednn("a convolution", [&]() -> std::unique_ptr<Kernel> {
    const auto description = forward_over(inner, plain ? Operand{} : r.in(0));
    if (!is_own(description)) return nullptr;
    const auto described = [=](const Activation& activation) {
      return forward_desc(p, layouts_of(description), activation);
    };
    if (!runs_bare(places, described)) return nullptr;
    return std::make_unique<PrimitiveKernel>(dnnl::convolution_forward(description),
                                             description.scratchpad_desc(),
                                             arguments_of(r, p, description, plain), name_of(p),
                                             after<dnnl::convolution_forward>(places, described));
  });
}

// Of float32, row-major: a kernel that writes a convolution alone, with the rest over its result.
std::unique_ptr<Kernel> finished(std::unique_ptr<Kernel> conv, const Convolution& p) {
  if (!conv || !(p.sum || p.activation)) return conv;
  const std::shared_ptr<const Kernel> inner = std::move(conv);
  const int64_t count = element_count(p.y);
  return make_kernel(
      name_of(p),
      [=, sum = p.sum, activation = p.activation](const Args& args) {
        inner->run(args);
        auto* y = output<float>(args);
        const auto* z = sum ? input<float>(args, 3) : nullptr;
        if (z)
          parallel_for(count, count, [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) y[i] += z[i];
          });
        activate(activation, DType::f32, y, count);
      },
      inner->scratch_bytes());
}

// Over an image of one column, by windows of more than one element of it.
bool is_column(const Convolution& p) {
  const Window& win = p.window;
  return p.x.size() == 4 && p.x[3] == 1 && p.w[3] == 1 && p.y[3] == 1 && win.kernel[0] > 1 &&
         win.before[1] == 0 && win.after[1] == 0;
}

// The same bytes as an image of one row: oneDNN's vectors and tiles lie along rows.
Convolution as_row(Convolution p) {
  for (Sizes* sizes : {&p.x, &p.w, &p.y}) std::swap((*sizes)[2], (*sizes)[3]);
  Window& win = p.window;
  for (Sizes* each : {&win.kernel, &win.strides, &win.dilations, &win.before, &win.after})
    std::swap((*each)[0], (*each)[1]);
  return p;
}

bool is_resized(Value x) {
  const auto& dims = x.type().dims;
  return !dims ||
         std::any_of(dims->begin() + 2, dims->end(), [](const Dim& dim) { return !dim.value(); });
}

std::unique_ptr<Kernel> conv(const Request& r) {
  Convolution p = convolution_of(r, r.sizes(0), r.sizes(1), r.out().sizes, r.has(2));
  p.frozen = static_cast<bool>(r.in(1).constant);
  p.resized = is_resized(r.node().input(0));
  p.sum = r.has(3);
  p.activation = activation_of(r.attrs());
  if (is_empty(p)) return element_count(p.y) == 0 ? conv_of_nothing(r) : nullptr;
  if (p.dtype == DType::f64) return column_conv<double>(columns(p), p.bias);
  if (is_column(p))
    if (auto kernel = by_primitive(r, as_row(p), true)) return kernel;
  if (auto kernel = by_primitive(r, p)) return kernel;
  if (!is_float(p)) return nullptr;
  Convolution bare = p;
  bare.sum = false;
  bare.activation = {};
  auto alone = p.sum || p.activation ? by_primitive(r, bare, true) : nullptr;
  return finished(alone ? std::move(alone) : column_conv<float>(columns(p), p.bias), p);
}

}  // namespace

static void register_conv(KernelTable& table) {
  add_conv_kernels(table.op("Conv").take_layouts(), conv);
  table.op("ort::Conv")
      .take_layouts()
      .add("onednn", kF32 | kHalves, has_spatial_axes, conv)
      .add("widened", kF32 | kHalves, has_spatial_axes,
           [](const Request& request) { return widened(request, conv); });
}

const Family<KernelTable> kConvKernels("cpu", "conv", register_conv);

}  // namespace ort::cpu
