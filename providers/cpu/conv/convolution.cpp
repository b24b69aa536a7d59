// What oneDNN is asked for, and the kernels around it that the forward and the gradients share.
#include "providers/cpu/conv/convolution.h"

#include <algorithm>

#include "providers/cpu/provider.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {
namespace {

// What is added lies as y does.
dnnl::primitive_attr with_post_ops(const Convolution& p, const dnnl::memory::desc& y,
                                   const Activation& activation) {
  dnnl::post_ops ops;
  if (p.sum) ops.append_binary(dnnl::algorithm::binary_add, y);
  append_activation(ops, activation);
  dnnl::primitive_attr attr = user_scratchpad();
  attr.set_post_ops(ops);
  return attr;
}

// oneDNN's (3.2) with tiles of AMX gives wrong sums in bfloat16 where a window is a whole number of
// steps along the last axis and the channels are no whole rows of a tile.
bool is_wrong(const Convolution& p, const dnnl::primitive_desc_base& description) {
  constexpr int64_t kRow = 32;
  const int64_t taps = p.w.back(), step = p.window.strides.back();
  const std::string_view name = description.impl_info_str();
  return name.starts_with("brgconv") && name.find("amx") != name.npos && step > 1 &&
         taps % step == 0 && p.w[1] % kRow != 0;
}

// oneDNN's (3.2) products of blocks keep lists for each element of a row: those of a sound's are
// many times its samples and weights. And what they compile is never given back: 40 KB for each
// size that a session meets.
bool is_heavy(const Convolution& p, const dnnl::primitive_desc_base& description) {
  constexpr int64_t kLongRow = 4096;
  const bool is_sound = p.y.back() >= kLongRow && p.w.back() > 1;
  return is_float(p) && (is_sound || (p.frozen && p.resized)) &&
         std::string_view(description.impl_info_str()).starts_with("brgconv");
}

}  // namespace

Sizes grouped(const Convolution& p) {
  if (p.group == 1) return p.w;
  Sizes w = p.w;
  w[0] /= p.group;
  w.insert(w.begin(), p.group);
  return w;
}

dnnl::memory::desc any_layout(const Convolution& p, const Sizes& sizes) {
  return {sizes, onednn_type(p.dtype), dnnl::memory::format_tag::any};
}

dnnl::memory::desc layout(const Convolution& p, const Sizes& sizes) {
  if (!p.channels_last) return any_layout(p, sizes);
  return {sizes, onednn_type(p.dtype), channels_last_tag(sizes.size())};
}

bool is_float(const Convolution& p) {
  return p.dtype == DType::f32;
}

ColumnConv columns(const Convolution& p) {
  return {p.x, p.w, p.y, p.group, p.window};
}

Sizes less_one(Sizes dilations) {
  for (int64_t& d : dilations) --d;
  return dilations;
}

dnnl::convolution_forward::primitive_desc forward_desc(const Convolution& p,
                                                       const ForwardLayouts& lie,
                                                       const Activation& activation) {
  using Kind = dnnl::prop_kind;
  const auto kind = p.frozen ? Kind::forward_inference : Kind::forward_training;
  const Window& win = p.window;
  const auto best = [&](bool lean) {
    dnnl::convolution_forward::primitive_desc description{
        cpu_engine(), kind,        dnnl::algorithm::convolution_direct,
        lie.x,        lie.w,       lie.b,
        lie.y,        win.strides, less_one(win.dilations),
        win.before,   win.after,   with_post_ops(p, lie.y, activation),
        true};
    while (description.get(true) &&
           (is_wrong(p, description) || (lean && is_heavy(p, description))) &&
           description.next_impl()) {
    }
    return description;
  };
  auto description = best(true);
  return is_own(description) ? description : best(false);
}

dnnl::convolution_forward::primitive_desc forward_desc(const Convolution& p) {
  const ForwardLayouts lie{p.given.is_zero() ? layout(p, p.x) : p.given, any_layout(p, grouped(p)),
                           p.bias ? any_layout(p, {p.y[1]}) : dnnl::memory::desc(), layout(p, p.y)};
  return forward_desc(p, lie, p.activation);
}

ForwardLayouts layouts_of(const dnnl::convolution_forward::primitive_desc& description) {
  return {description.src_desc(), description.weights_desc(), description.bias_desc(),
          description.dst_desc()};
}

std::unique_ptr<Kernel> conv_of_nothing(const Request& r) {
  const size_t bytes = static_cast<size_t>(element_count(r.out().sizes)) * size_of(r.out().dtype);
  return make_kernel(r.node().op,
                     [bytes](const Args& args) { std::fill_n(output<char>(args), bytes, 0); });
}

bool is_empty(const Convolution& p) {
  return element_count(p.x) == 0 || element_count(p.w) == 0 || element_count(p.y) == 0;
}

bool meets_image(const Convolution& p) {
  const Window& win = p.window;
  const auto meets = [&](size_t axis) {
    for (int64_t o = 0; o < p.y[axis + 2]; ++o)
      for (int64_t k = 0; k < win.kernel[axis]; ++k) {
        const int64_t at = o * win.strides[axis] - win.before[axis] + k * win.dilations[axis];
        if (at >= 0 && at < p.x[axis + 2]) return true;
      }
    return false;
  };
  for (size_t axis = 0; axis < win.kernel.size(); ++axis)
    if (!meets(axis)) return false;
  return true;
}

Convolution convolution_of(const Request& r, const Sizes& x, const Sizes& w, const Sizes& y,
                           bool bias) {
  const int64_t group = r.attrs().i("group", 1);
  const bool fits = group > 0 && w[0] % group == 0 && x[1] == w[1] * group && y[1] == w[0];
  if (!fits)
    r.refuse("x has {} channels, y has {}, w has shape {} with group {}", x[1], y[1], w, group);
  const Sizes kernel(w.begin() + 2, w.end());
  return {x, w, y, group, window_of(r, x, y, kernel), bias, r.in(0).dtype};
}

Verdict has_spatial_axes(const Node& node) {
  const auto& dims = node.input(0).type().dims;
  return require(dims && dims->size() >= 3 && dims->size() <= 5,
                 "expected 1 to 3 spatial axes of known rank");
}

void add_conv_kernels(KernelList& list, std::unique_ptr<Kernel> (*make)(const Request&)) {
  list.add("onednn", kF32 | kHalves, has_spatial_axes, make)
      .add("columns", kF64, has_spatial_axes, make)
      .add("widened", kF32 | kHalves, has_spatial_axes,
           [make](const Request& r) { return widened(r, make); });
}

}  // namespace ort::cpu
