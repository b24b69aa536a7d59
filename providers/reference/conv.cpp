// Convolutions over [N, C, D1..Dn] and their gradients; a transposed one is the gradient in x.
#include <algorithm>

#include "providers/reference/window.h"

namespace ort::reference {
namespace {

// x [N, C, in..], w [M, C / group, kernel..], y [N, M, out..].
struct Problem {
  int64_t batch, channels, filters, group;
  Taps taps;
  int64_t x_elements() const { return batch * channels * taps.inputs; }
  int64_t y_elements() const { return batch * filters * taps.outputs; }
};

Problem problem_of(const KernelCall& c, const Sizes& x, const Sizes& w, const Sizes& y,
                   const Window& window) {
  const int64_t group = c.attrs().i("group");
  c.require(x.size() >= 3 && w.size() == x.size() && y.size() == x.size(),
            "x has shape {}, w has shape {}, y has shape {}, expected one rank", x, w, y);
  c.require(group > 0 && x[1] == w[1] * group && w[0] % group == 0 && y[1] == w[0] && x[0] == y[0],
            "x has shape {}, w has shape {}, y has shape {}, which group {} does not fit", x, w, y,
            group);
  return {x[0], x[1], w[0], group, taps_of(window, spatial(x), spatial(y))};
}

Problem problem_of(const KernelCall& c, const Sizes& x, const Sizes& w, const Sizes& y) {
  return problem_of(c, x, w, y, window_of(c, spatial(w), spatial(x), spatial(y)));
}

// f(x index, w index, y index) for every product of the convolution.
template <class F>
void each_product(const Problem& p, F f) {
  const int64_t per_group = p.channels / p.group, filters = p.filters / p.group;
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t m = 0; m < p.filters; ++m)
      for (int64_t i = 0; i < per_group; ++i) {
        const int64_t x = (n * p.channels + m / filters * per_group + i) * p.taps.inputs;
        const int64_t w = (m * per_group + i) * p.taps.kernels;
        const int64_t y = (n * p.filters + m) * p.taps.outputs;
        const int64_t* at = p.taps.at.data();
        for (int64_t o = 0; o < p.taps.outputs; ++o)
          for (int64_t k = 0; k < p.taps.kernels; ++k, ++at)
            if (*at >= 0)
              f(static_cast<size_t>(x + *at), static_cast<size_t>(w + k),
                static_cast<size_t>(y + o));
      }
}

void add_bias(const KernelCall& c, std::vector<double>& y) {
  if (!c.has(2)) return;
  const Split s = split_at(c.out_sizes(), 1);
  const std::vector<double> bias = c.all<double>(2);
  c.require(static_cast<int64_t>(bias.size()) == s.size, "b has shape {}, expected [{}]",
            c.sizes(2), s.size);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] += bias[static_cast<size_t>(static_cast<int64_t>(i) / s.inner % s.size)];
}

void conv(const KernelCall& c) {
  const Problem p = problem_of(c, c.sizes(0), c.sizes(1), c.out_sizes());
  const std::vector<double> x = c.all<double>(0), w = c.all<double>(1);
  std::vector<double> y(static_cast<size_t>(p.y_elements()), 0.0);
  each_product(p, [&](size_t i, size_t k, size_t o) { y[o] += x[i] * w[k]; });
  add_bias(c, y);
  c.write(0, y);
}

void conv_grad_x(const KernelCall& c) {
  const Problem p = problem_of(c, c.out_sizes(), c.sizes(1), c.sizes(0));
  const std::vector<double> dy = c.all<double>(0), w = c.all<double>(1);
  std::vector<double> dx(static_cast<size_t>(p.x_elements()), 0.0);
  each_product(p, [&](size_t i, size_t k, size_t o) { dx[i] += dy[o] * w[k]; });
  c.write(0, dx);
}

void conv_grad_w(const KernelCall& c) {
  const Problem p = problem_of(c, c.sizes(1), c.out_sizes(), c.sizes(0));
  const std::vector<double> dy = c.all<double>(0), x = c.all<double>(1);
  std::vector<double> dw(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  each_product(p, [&](size_t i, size_t k, size_t o) { dw[k] += dy[o] * x[i]; });
  c.write(0, dw);
}

// Without explicit pads the padding is what takes the full transposed extent to the planned one.
Window transposed_window(const KernelCall& c) {
  const Sizes from = spatial(c.sizes(0)), to = spatial(c.out_sizes());
  Window w = window_of(c, spatial(c.sizes(1)), to, from);
  const std::string& mode = c.attrs().s("auto_pad");
  const bool derived =
      c.attrs().has("output_shape") || mode == "SAME_UPPER" || mode == "SAME_LOWER";
  const Sizes extra =
      c.attrs().has("output_padding") ? c.attrs().ints("output_padding") : Sizes(to.size(), 0);
  c.require(extra.size() == to.size(), "output_padding {} does not fit {} spatial axes", extra,
            to.size());
  for (size_t d = 0; derived && d < to.size(); ++d) {
    const int64_t full =
        w.strides[d] * (from[d] - 1) + extra[d] + w.dilations[d] * (w.kernel[d] - 1) + 1;
    const int64_t total = std::max<int64_t>(0, full - to[d]);
    w.before[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.after[d] = total - w.before[d];
  }
  return w;
}

void conv_transpose(const KernelCall& c) {
  const Problem p = problem_of(c, c.out_sizes(), c.sizes(1), c.sizes(0), transposed_window(c));
  const std::vector<double> x = c.all<double>(0), w = c.all<double>(1);
  std::vector<double> y(static_cast<size_t>(p.x_elements()), 0.0);
  each_product(p, [&](size_t i, size_t k, size_t o) { y[i] += x[o] * w[k]; });
  add_bias(c, y);
  c.write(0, y);
}

}  // namespace

static void register_conv(KernelTable& table) {
  add(table, "Conv", kNumbers, conv);
  add(table, "ort::ConvGradX", kNumbers, conv_grad_x);
  add(table, "ort::ConvGradW", kNumbers, conv_grad_w);
  add(table, "ConvTranspose", kNumbers, conv_transpose);
}

const Family<KernelTable> kConvKernels("reference", "conv", register_conv);

}  // namespace ort::reference
