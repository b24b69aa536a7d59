// One convolution as oneDNN is asked for it: what the forward and the gradients share.
#pragma once

#include <optional>

#include "providers/cpu/conv/column_conv.h"
#include "providers/cpu/conv/window.h"
#include "providers/cpu/onednn/onednn.h"

namespace ort::cpu {

// One convolution y = conv(x, w), whichever of the three is being computed.
struct Convolution {
  Sizes x, w, y;  // w as [O, I / group, K..]
  int64_t group;
  Window window;
  bool bias = false;
  DType dtype = DType::f32;
  bool channels_last = false;     // what oneDNN is asked for x and y; else what it prefers
  bool comes_last = false;        // an operand comes so
  dnnl::memory::desc given = {};  // as which it is to take x, or y for x; empty: it may choose
  bool frozen = false;            // w is a constant: nothing is trained
  bool resized = false;           // another run may have an image of another size
  bool sum = false;               // operand 3 is added
  Activation activation = {};
};

// Of a node, with its window; refused where its group does not divide them.
Convolution convolution_of(const Request& r, const Sizes& x, const Sizes& w, const Sizes& y,
                           bool bias = false);
bool is_empty(const Convolution& p);
// Whether a window has an element of x. Where none does, oneDNN (3.2) with tiles of AMX has no
// kernel and reads and writes beyond its list of them, so it is not asked.
bool meets_image(const Convolution& p);
bool is_float(const Convolution& p);
ColumnConv columns(const Convolution& p);
std::unique_ptr<Kernel> conv_of_nothing(const Request& r);  // zeros

// [O, I / g, K..] as [g, O / g, I / g, K..]: the same bytes.
Sizes grouped(const Convolution& p);
dnnl::memory::desc any_layout(const Convolution& p, const Sizes& sizes);
dnnl::memory::desc layout(const Convolution& p, const Sizes& sizes);  // of x or y
Sizes less_one(Sizes dilations);
// The forward's, which the gradients take as a hint. Those for inference prefer other layouts than
// the gradients have, and weights packed once.
dnnl::convolution_forward::primitive_desc forward_desc(const Convolution& p);
struct ForwardLayouts {
  dnnl::memory::desc x, w, b, y;
};
ForwardLayouts layouts_of(const dnnl::convolution_forward::primitive_desc& description);
dnnl::convolution_forward::primitive_desc forward_desc(const Convolution& p,
                                                       const ForwardLayouts& lie,
                                                       const Activation& activation);

Verdict has_spatial_axes(const Node& node);
// Over [N, C, 1 to 3 spatial axes], best first.
void add_conv_kernels(KernelList& list, std::unique_ptr<Kernel> (*make)(const Request&));

// nullopt where oneDNN has no kernel that is run here.
template <class Make>
auto own_or_none(Make make) -> std::optional<decltype(make())> {
  try {
    if (auto description = make(); is_own(description)) return description;
  } catch (const dnnl::error&) {  // not in these layouts, or of these shapes
  }
  return std::nullopt;
}

// Where it would be oneDNN's products of columns, which are not run here, or its reference: with
// channels last other kernels take shapes besides, as a window larger than its image.
template <class Make>
auto described(Convolution& p, Make make) {
  const auto with_channels_last = [&] {
    p.channels_last = true;
    auto description = own_or_none(make);
    p.channels_last = description.has_value();
    return description;
  };
  if (p.comes_last)
    if (auto last = with_channels_last()) return *last;
  auto description = make();
  if (!description.get(true) || is_own(description)) return description;
  const auto last = with_channels_last();
  return last ? *last : description;
}

}  // namespace ort::cpu
