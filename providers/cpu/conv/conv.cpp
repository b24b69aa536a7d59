// Convolutions and their gradients on oneDNN; by products in float64 and where oneDNN has no kernel
// that is run here. x and y may lie as oneDNN prefers; weights do so inside a kernel, a constant
// one once for all runs. A sum and an activation are post-ops, or go over the result.
#include <algorithm>
#include <functional>

#include "csrc/core/parallel.h"
#include "providers/cpu/conv/column_conv.h"
#include "providers/cpu/conv/depthwise.h"
#include "providers/cpu/conv/window.h"
#include "providers/cpu/onednn.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {
namespace {

using dnnl::memory;
using Argument = PrimitiveKernel::Argument;

// One convolution y = conv(x, w), whichever of the three is being computed.
struct Problem {
  Sizes x, w, y;  // w as [O, I / group, K..]
  int64_t group;
  Window window;
  bool bias = false;
  DType dtype = DType::f32;
  bool channels_last = false;  // what oneDNN is asked for x and y; else what it prefers
  bool comes_last = false;     // an operand comes so
  memory::desc given = {};     // as which it is to take x, or y for x; empty: it may choose
  bool frozen = false;         // w is a constant: nothing is trained
  bool sum = false;            // operand 3 is added
  Activation activation = {};
};

// [O, I / g, K..] as [g, O / g, I / g, K..]: the same bytes.
Sizes grouped(const Problem& p) {
  if (p.group == 1) return p.w;
  Sizes w = p.w;
  w[0] /= p.group;
  w.insert(w.begin(), p.group);
  return w;
}

memory::desc any_layout(const Problem& p, const Sizes& sizes) {
  return {sizes, onednn_type(p.dtype), memory::format_tag::any};
}

// Of x or y.
memory::desc layout(const Problem& p, const Sizes& sizes) {
  using Tag = memory::format_tag;
  if (!p.channels_last) return any_layout(p, sizes);
  const Tag tag = sizes.size() == 3 ? Tag::nwc : sizes.size() == 4 ? Tag::nhwc : Tag::ndhwc;
  return {sizes, onednn_type(p.dtype), tag};
}

bool is_float(const Problem& p) {
  return p.dtype == DType::f32;
}

ColumnConv columns(const Problem& p) {
  return {p.x, p.w, p.y, p.group, p.window};
}

// Where it would be oneDNN's products of columns, which are not run here, or its reference: with
// channels last other kernels take shapes besides, as a window larger than its image.
template <class Make>
auto described(Problem& p, Make make) {
  const auto with_channels_last = [&]() -> std::optional<decltype(make())> {
    p.channels_last = true;
    try {
      if (auto description = make(); is_own(description)) return description;
    } catch (const dnnl::error&) {  // none for these shapes
    }
    p.channels_last = false;
    return std::nullopt;
  };
  if (p.comes_last)
    if (auto last = with_channels_last()) return *last;
  auto description = make();
  if (!description.get(true) || is_own(description)) return description;
  const auto last = with_channels_last();
  return last ? *last : description;
}

Sizes less_one(Sizes dilations) {
  for (int64_t& d : dilations) --d;
  return dilations;
}

// What is added lies as y does.
dnnl::primitive_attr with_post_ops(const Problem& p) {
  dnnl::post_ops ops;
  if (p.sum) ops.append_binary(dnnl::algorithm::binary_add, any_layout(p, p.y));
  append_activation(ops, p.activation);
  dnnl::primitive_attr attr = user_scratchpad();
  attr.set_post_ops(ops);
  return attr;
}

// Those for inference prefer other layouts than the gradients have, and weights packed once.
dnnl::convolution_forward::primitive_desc forward_desc(const Problem& p) {
  using Kind = dnnl::prop_kind;
  const auto kind = p.frozen ? Kind::forward_inference : Kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Window& win = p.window;
  const auto x = p.given.is_zero() ? layout(p, p.x) : p.given, w = any_layout(p, grouped(p)),
             y = layout(p, p.y);
  const auto b = p.bias ? any_layout(p, {p.y[1]}) : memory::desc();
  return {
      cpu_engine(), kind,      algorithm,        x,   w, b, y, win.strides, less_one(win.dilations),
      win.before,   win.after, with_post_ops(p), true};
}

// Whether it is handed over as it lies, and may be asked for otherwise. Where it is row-major the
// kernel brings it into the layout that it wants by itself.
bool comes_blocked(const Operand& operand) {
  return operand.any_layout && operand.layout.blocked();
}

bool comes_last(const Operand& operand) {
  return comes_blocked(operand) && operand.layout.blocked()->channels_last();
}

// With x as it lies where the same implementation takes it so.
dnnl::convolution_forward::primitive_desc forward_over(Problem p, const Operand& x) {
  p.comes_last = comes_last(x);
  auto best = described(p, [&] { return forward_desc(p); });
  if (!comes_blocked(x) || !is_own(best)) return best;
  p.given = desc_of(x);
  if (best.src_desc() == p.given) return best;
  try {
    auto other = forward_desc(p);
    const bool same =
        other.get(true) && std::string_view(other.impl_info_str()) == best.impl_info_str();
    return same ? other : best;
  } catch (const dnnl::error&) {  // none for this layout
    return best;
  }
}

std::unique_ptr<Kernel> zeros(const Request& r) {
  const size_t bytes = static_cast<size_t>(element_count(r.out().sizes)) * size_of(r.out().dtype);
  return make_kernel(r.node().op,
                     [bytes](const Args& args) { std::fill_n(output<char>(args), bytes, 0); });
}

bool is_empty(const Problem& p) {
  return element_count(p.x) == 0 || element_count(p.w) == 0 || element_count(p.y) == 0;
}

void check_group(const Request& r, const Problem& p) {
  const bool fits =
      p.group > 0 && p.w[0] % p.group == 0 && p.x[1] == p.w[1] * p.group && p.y[1] == p.w[0];
  if (!fits)
    r.refuse("x has {} channels, y has {}, w has shape {} with group {}", p.x[1], p.y[1], p.w,
             p.group);
}

Sizes kernel_of(const Sizes& w) {
  return Sizes(w.begin() + 2, w.end());
}

using ForwardDesc = dnnl::convolution_forward::primitive_desc;

std::string name_of(const Problem& p) {
  return (p.sum ? "Conv+add" : "Conv") + name_of(p.activation);
}

// `plain`: all lie row-major outside.
std::vector<Argument> arguments_of(const Request& r, const Problem& p, const ForwardDesc& d,
                                   bool plain) {
  const auto any = [&](const Operand& operand) { return !plain && comes_blocked(operand); };
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

// The same but for the activation, with every operand as it lies there.
auto like(Problem p, const ForwardDesc& d) {
  return [=](const Activation& activation) {
    dnnl::post_ops ops;
    if (p.sum) ops.append_binary(dnnl::algorithm::binary_add, d.dst_desc());
    append_activation(ops, activation);
    dnnl::primitive_attr attr = user_scratchpad();
    attr.set_post_ops(ops);
    return ForwardDesc(cpu_engine(), d.get_prop_kind(), dnnl::algorithm::convolution_direct,
                       d.src_desc(), d.weights_desc(), d.bias_desc(), d.dst_desc(),
                       p.window.strides, less_one(p.window.dilations), p.window.before,
                       p.window.after, attr, true);
  };
}

// Null where oneDNN has no kernel that is run here.
std::unique_ptr<Kernel> by_primitive(const Request& r, const Problem& p, bool plain = false) {
  if (!is_post_op(p.activation)) return nullptr;
  const Split parts = split(p.activation);
  Problem inner = p;
  inner.activation = parts.post_op;
  return with_onednn("a convolution", [&]() -> std::unique_ptr<Kernel> {
    const auto description = forward_over(inner, plain ? Operand{} : r.in(0));
    if (!is_own(description)) return nullptr;
    return std::make_unique<PrimitiveKernel>(
        dnnl::convolution_forward(description), description.scratchpad_desc(),
        arguments_of(r, p, description, plain), name_of(p),
        after<dnnl::convolution_forward>(parts, like(p, description)));
  });
}

// Of float32, row-major: a kernel that writes a convolution alone, with the rest over its result.
std::unique_ptr<Kernel> finished(std::unique_ptr<Kernel> conv, const Problem& p) {
  if (!conv || !(p.sum || p.activation)) return conv;
  const std::shared_ptr<const Kernel> inner = std::move(conv);
  const int64_t count = element_count(p.y);
  return make_kernel(
      name_of(p),
      [=, sum = p.sum, activation = p.activation](const Args& args) {
        inner->run(args);
        auto* y = output<float>(args);
        const auto* z = sum ? input<float>(args, 3) : nullptr;
        for (int64_t i = 0; z && i < count; ++i) y[i] += z[i];
        activate(activation, y, count);
      },
      inner->scratch_bytes());
}

std::unique_ptr<Kernel> conv(const Request& r) {
  Problem p{r.sizes(0), r.sizes(1), r.out().sizes, r.attrs().i("group", 1),
            {},         r.has(2),   r.in(0).dtype};
  check_group(r, p);
  p.window = window_of(r, p.x, p.y, kernel_of(p.w));
  p.frozen = r.in(1).constant != nullptr;
  p.sum = r.has(3);
  p.activation = activation_of(r.attrs());
  if (is_empty(p)) return element_count(p.y) == 0 ? zeros(r) : nullptr;
  if (p.dtype == DType::f64) return column_conv<double>(columns(p), p.bias);
  if (auto kernel = by_primitive(r, p)) return kernel;
  if (!is_float(p)) return nullptr;
  Problem bare = p;
  bare.sum = false;
  bare.activation = {};
  auto alone = p.sum || p.activation ? by_primitive(r, bare, true) : nullptr;
  return finished(alone ? std::move(alone) : column_conv<float>(columns(p), p.bias), p);
}

// x from y and w.
dnnl::convolution_backward_data::primitive_desc backward_data_desc(const Problem& p) {
  const Window& win = p.window;
  const auto y = p.given.is_zero() ? layout(p, p.y) : p.given;
  Problem forward = p;
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
dnnl::convolution_backward_data::primitive_desc backward_data_over(Problem p, const Operand* y) {
  p.comes_last = y && comes_last(*y);
  auto best = described(p, [&] { return backward_data_desc(p); });
  if (!y || !comes_blocked(*y) || !is_own(best) || best.diff_dst_desc() == desc_of(*y)) return best;
  Problem as_it_lies = p;
  as_it_lies.channels_last = false;
  as_it_lies.given = desc_of(*y);
  try {
    auto other = backward_data_desc(as_it_lies);
    return is_own(other) ? other : best;
  } catch (const dnnl::error&) {  // none for this layout
    return best;
  }
}

std::unique_ptr<Kernel> backward_data(Problem p, const char* name, const Operand* y = nullptr,
                                      bool any_x = false) {
  if (p.dtype == DType::f64) return column_conv_grad_x<double>(columns(p), p.bias);
  return with_onednn("a convolution's input gradient", [&]() -> std::unique_ptr<Kernel> {
    const auto by_columns = [&] {
      return is_float(p) ? column_conv_grad_x<float>(columns(p), false) : nullptr;
    };
    if (!is_own(forward_desc(p))) return by_columns();
    const auto description = backward_data_over(p, y);
    if (!is_own(description)) return by_columns();
    std::vector<Argument> arguments{
        {DNNL_ARG_DIFF_DST, dense_desc(p.y, p.dtype), false, 0, description.diff_dst_desc(),
         y && comes_blocked(*y)},
        {DNNL_ARG_WEIGHTS, dense_desc(grouped(p), p.dtype), false, 1, description.weights_desc()},
        {DNNL_ARG_DIFF_SRC, dense_desc(p.x, p.dtype), true, 0, description.diff_src_desc(), any_x}};
    return std::make_unique<PrimitiveKernel>(dnnl::convolution_backward_data(description),
                                             description.scratchpad_desc(), std::move(arguments),
                                             name);
  });
}

std::unique_ptr<Kernel> conv_grad_x(const Request& r) {
  Problem p{r.out().sizes, r.sizes(1),   r.sizes(0), r.attrs().i("group", 1), {},
            false,         r.in(0).dtype};
  check_group(r, p);
  p.window = window_of(r, p.x, p.y, kernel_of(p.w));
  if (is_empty(p)) return zeros(r);
  return backward_data(p, "ConvGradX", &r.in(0), r.out().any_layout);
}

// Where oneDNN's jit_bf16 (3.2 to 3.10) reads beyond the image: windows that step over one or two
// outputs, or a tap that never touches the image.
bool reads_beyond(const Problem& p) {
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
  Problem p{r.sizes(1), r.out().sizes, r.sizes(0),   r.attrs().i("group", 1),
            {},         false,         r.in(0).dtype};
  check_group(r, p);
  p.window = window_of(r, p.x, p.y, kernel_of(p.w));
  if (is_empty(p)) return zeros(r);
  if (auto kernel = depthwise_grad_w(r, p.window)) return kernel;
  if (p.dtype == DType::bf16 && reads_beyond(p)) return nullptr;
  if (p.dtype == DType::f64) return column_conv_grad_w<double>(columns(p));
  return with_onednn("a convolution's weight gradient", [&]() -> std::unique_ptr<Kernel> {
    const auto by_columns = [&] {
      return is_float(p) ? column_conv_grad_w<float>(columns(p)) : nullptr;
    };
    if (!is_own(forward_desc(p))) return by_columns();
    p.comes_last = comes_last(r.in(0)) || comes_last(r.in(1));
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
                                     description.src_desc(), comes_blocked(r.in(1))},
                                    {DNNL_ARG_DIFF_DST, dense_desc(p.y, p.dtype), false, 0,
                                     description.diff_dst_desc(), comes_blocked(r.in(0))},
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
    if (!layout.is_plain())
      lanes_ = layout.blocked()->channels_last() ? out_[1] : layout.blocked()->channel_block();
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
  return layout.is_plain() || layout.blocked()->channels_last() ||
         layout.blocked()->channel_block() > 0;
}

std::unique_ptr<Kernel> conv_transpose(const Request& r) {
  Problem p{r.out().sizes, r.sizes(1),   r.sizes(0), r.attrs().i("group", 1), {},
            r.has(2),      r.in(0).dtype};
  check_group(r, p);
  p.window = window_of(r, p.x, p.y, kernel_of(p.w));
  if (p.dtype == DType::f64) return backward_data(p, "ConvTranspose");
  auto inner =
      is_empty(p) ? zeros(r) : backward_data(p, "ConvTranspose", &r.in(0), r.out().any_layout);
  if (!r.has(2) || !inner) return inner;
  if (p.dtype != DType::f32) return nullptr;  // rounded once, with its bias
  if (!has_lanes(*inner)) inner = backward_data(p, "ConvTranspose", &r.in(0));
  return std::make_unique<BiasedKernel>(std::move(inner), p.x);
}

Verdict spatial(const Node& node) {
  const auto& dims = node.input(0).type().dims;
  return require(dims && dims->size() >= 3 && dims->size() <= 5,
                 "expected 1 to 3 spatial axes of known rank");
}

using ConvKernel = std::unique_ptr<Kernel>(const Request&);

void add_kernels(KernelList& list, ConvKernel make) {
  list.add("onednn", kF32 | kHalves, spatial, make)
      .add("columns", kF64, spatial, make)
      .add("widened", kF32 | kHalves, spatial,
           [make](const Request& r) { return widened(r, make); });
}

}  // namespace

static void register_conv(KernelTable& table) {
  add_kernels(table.op("Conv").take_layouts(), conv);
  table.op("ort::Conv")
      .take_layouts()
      .add("onednn", kF32 | kHalves, spatial, conv)
      .add("widened", kF32 | kHalves, spatial,
           [](const Request& request) { return widened(request, conv); });
  add_kernels(table.op("ort::ConvGradX").take_layouts(), conv_grad_x);
  add_kernels(table.op("ort::ConvGradW").take_layouts(), conv_grad_w);
  add_kernels(table.op("ConvTranspose").take_layouts(), conv_transpose);
}

const Family<KernelTable> kFamily("cpu", "conv", register_conv);

}  // namespace ort::cpu
