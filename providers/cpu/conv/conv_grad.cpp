// The gradients of a convolution by oneDNN, and the transposed one, which is that of x; by products
// in float64 and where oneDNN has no kernel that is run here. x and y may lie as oneDNN prefers.
#include <algorithm>
#include <functional>

#include "csrc/core/parallel.h"
#include "providers/cpu/conv/convolution.h"
#include "providers/cpu/conv/depthwise.h"
#include "providers/cpu/onednn/primitive_kernel.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

using dnnl::memory;
using Argument = PrimitiveKernel::Argument;

// x from y and w.
dnnl::convolution_backward_data::primitive_desc backward_data_desc(const Convolution& p) {
  const Window& win = p.window;
  const auto y = p.given.is_zero() ? layout(p, p.y) : p.given;
  Convolution forward = p;
  forward.given = {};
  return {cpu_engine(),
          dnnl::algorithm::convolution_direct,
          layout(p, p.x),
          any_layout(p, grouped(p)),
          y,
          win.strides,
          less_one(win.dilations),
          win.before,
          win.after,
          forward_desc(forward),
          user_scratchpad(),
          true};
}

// With y as it lies where oneDNN has a kernel for that: what it prefers where windows step, with
// channels last, gains less than two reorders take.
dnnl::convolution_backward_data::primitive_desc backward_data_over(Convolution p,
                                                                   const Operand* y) {
  p.comes_last = y && y->comes_with_channels_last();
  auto best = described(p, [&] { return backward_data_desc(p); });
  if (!y || !y->comes_blocked() || !is_own(best) || best.diff_dst_desc() == desc_of(*y))
    return best;
  Convolution as_it_lies = p;
  as_it_lies.channels_last = false;
  as_it_lies.given = desc_of(*y);
  const auto other = own_or_none([&] { return backward_data_desc(as_it_lies); });
  return other ? *other : best;
}

std::unique_ptr<Kernel> backward_data(Convolution p, const char* name, const Operand* y = nullptr,
                                      bool any_x = false) {
  if (p.dtype == DType::f64) return column_conv_grad_x<double>(columns(p), p.bias);
  return with_onednn("a convolution's input gradient", [&]() -> std::unique_ptr<Kernel> {
    const auto by_columns = [&] {
      return is_float(p) ? column_conv_grad_x<float>(columns(p), false) : nullptr;
    };
    if (!meets_image(p) || !is_own(forward_desc(p))) return by_columns();
    const auto description = backward_data_over(p, y);
    if (!is_own(description)) return by_columns();
    std::vector<Argument> arguments{
        {DNNL_ARG_DIFF_DST, dense_desc(p.y, p.dtype), false, 0, description.diff_dst_desc(),
         y && y->comes_blocked()},
        {DNNL_ARG_WEIGHTS, dense_desc(grouped(p), p.dtype), false, 1, description.weights_desc()},
        {DNNL_ARG_DIFF_SRC, dense_desc(p.x, p.dtype), true, 0, description.diff_src_desc(), any_x}};
    return std::make_unique<PrimitiveKernel>(dnnl::convolution_backward_data(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             name);
  });
}

std::unique_ptr<Kernel> conv_grad_x(const Request& r) {
  const Convolution p = convolution_of(r, r.out().sizes, r.sizes(1), r.sizes(0));
  if (is_empty(p)) return conv_of_nothing(r);
  return backward_data(p, "ConvGradX", &r.in(0), r.out().any_layout);
}

// Where oneDNN's jit_bf16 (3.2 to 3.10) reads beyond the image: windows that step over one or two
// outputs, or a tap that never touches the image.
bool reads_beyond(const Convolution& p) {
  const Window& win = p.window;
  for (size_t i = 0; i < win.kernel.size(); ++i) {
    const int64_t in = p.x[i + 2], out = p.y[i + 2];
    if (out <= 2 && win.strides[i] > 1) return true;
    for (int64_t k = 0; k < win.kernel[i]; ++k) {
      bool touches = false;
      for (int64_t o = 0; o < out && !touches; ++o) {
        const int64_t at = o * win.strides[i] - win.before[i] + k * win.dilations[i];
        touches = at >= 0 && at < in;
      }
      if (!touches) return true;
    }
  }
  return false;
}

std::unique_ptr<Kernel> conv_grad_w(const Request& r) {
  Convolution p = convolution_of(r, r.sizes(1), r.out().sizes, r.sizes(0));
  if (is_empty(p)) return conv_of_nothing(r);
  if (auto kernel = depthwise_grad_w(r, p.window)) return kernel;
  if (p.dtype == DType::bf16 && reads_beyond(p)) return nullptr;
  if (p.dtype == DType::f64) return column_conv_grad_w<double>(columns(p));
  return with_onednn("a convolution's weight gradient", [&]() -> std::unique_ptr<Kernel> {
    const auto by_columns = [&] {
      return is_float(p) ? column_conv_grad_w<float>(columns(p)) : nullptr;
    };
    if (!meets_image(p) || !is_own(forward_desc(p))) return by_columns();
    p.comes_last = r.in(0).comes_with_channels_last() || r.in(1).comes_with_channels_last();
    const Window& win = p.window;
    const memory::desc w(grouped(p), onednn_type(r.out().dtype), memory::format_tag::any);
    const auto description = described(p, [&] {
      return dnnl::convolution_backward_weights::primitive_desc(
          cpu_engine(), dnnl::algorithm::convolution_direct, layout(p, p.x), w, layout(p, p.y),
          win.strides, less_one(win.dilations), win.before, win.after, forward_desc(p),
          user_scratchpad(), true);
    });
    if (!is_own(description)) return by_columns();
    std::vector<Argument> arguments{{DNNL_ARG_SRC, dense_desc(p.x, p.dtype), false, 1,
                                     description.src_desc(), r.in(1).comes_blocked()},
                                    {DNNL_ARG_DIFF_DST, dense_desc(p.y, p.dtype), false, 0,
                                     description.diff_dst_desc(), r.in(0).comes_blocked()},
                                    {DNNL_ARG_DIFF_WEIGHTS, dense_desc(grouped(p), r.out().dtype),
                                     true, 0, description.diff_weights_desc()}};
    return std::make_unique<PrimitiveKernel>(dnnl::convolution_backward_weights(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             "ConvGradW");
  });
}

// A convolution's input gradient with a bias added to it, of float32.
class BiasedKernel final : public Kernel {
 public:
  BiasedKernel(std::unique_ptr<Kernel> inner, Sizes out)
      : inner_(std::move(inner)), out_(std::move(out)) {
    const Layout layout = inner_->layout_of_output(0);
    if (layout.blocked()) lanes_ = layout.blocked()->channels_in_row();
  }
  void run(const Args& args) const override {
    inner_->run(args);
    const int64_t blocks = out_[1] / lanes_, count = element_count(out_);
    const int64_t each = count / std::max<int64_t>(out_[0] * blocks, 1);
    parallel_for(out_[0] * blocks, count, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        float* y = output<float>(args) + block * each;
        const float* bias = input<float>(args, 2) + block % blocks * lanes_;
        if (lanes_ == 1) std::transform(y, y + each, y, [&](float value) { return value + *bias; });
        for (int64_t at = 0; at < each && lanes_ > 1; at += lanes_)
          std::transform(y + at, y + at + lanes_, bias, y + at, std::plus<>());
      }
    });
  }
  size_t scratch_bytes() const override { return inner_->scratch_bytes(); }
  std::string name() const override { return "ConvTranspose"; }
  Layout layout_of_input(size_t in) const override { return inner_->layout_of_input(in); }
  Layout layout_of_output(size_t out) const override { return inner_->layout_of_output(out); }

 private:
  std::unique_ptr<Kernel> inner_;
  Sizes out_;
  int64_t lanes_ = 1;  // channels side by side
};

// Whether a bias can be added to a result that lies so.
bool has_lanes(const Kernel& kernel) {
  const Layout layout = kernel.layout_of_output(0);
  return layout.is_plain() || layout.blocked()->channels_in_row() > 0;
}

std::unique_ptr<Kernel> conv_transpose(const Request& r) {
  const Convolution p = convolution_of(r, r.out().sizes, r.sizes(1), r.sizes(0), r.has(2));
  if (p.dtype == DType::f64) return backward_data(p, "ConvTranspose");
  auto inner = is_empty(p) ? conv_of_nothing(r)
                           : backward_data(p, "ConvTranspose", &r.in(0), r.out().any_layout);
  if (!r.has(2) || !inner) return inner;
  if (p.dtype != DType::f32) return nullptr;  // rounded once, with its bias
  if (!has_lanes(*inner)) inner = backward_data(p, "ConvTranspose", &r.in(0));
  return std::make_unique<BiasedKernel>(std::move(inner), p.x);
}

}  // namespace

static void register_conv_grad(KernelTable& table) {
  add_conv_kernels(table.op("ort::ConvGradX").take_layouts(), conv_grad_x);
  add_conv_kernels(table.op("ort::ConvGradW").take_layouts(), conv_grad_w);
  add_conv_kernels(table.op("ConvTranspose").take_layouts(), conv_transpose);
}

const Family<KernelTable> kConvGradKernels("cpu", "conv_grad", register_conv_grad);

}  // namespace ort::cpu
