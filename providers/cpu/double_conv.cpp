// Image by image and group by group: [O / g, C / g K] times [C / g K, E], or their transposes.
#include "providers/cpu/double_conv.h"

#include <omp.h>

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/dgemm.h"

namespace ort::cpu {
namespace {

// One axis of a window over an image; missing leading ones have size 1.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, before = 0;
};

class Columns {
 public:
  explicit Columns(const DoubleConv& c)
      : images(c.x[0]),
        groups(c.group),
        channels(c.x[1] / c.group),
        filters(c.w[0] / c.group),
        threads(std::max(1, omp_get_max_threads())) {
    const size_t n = c.x.size() - 2;
    for (size_t i = 0; i < n; ++i)
      axes_[3 - n + i] = {c.x[2 + i],
                          c.y[2 + i],
                          c.window.kernel[i],
                          c.window.strides[i],
                          c.window.dilations[i],
                          c.window.before[i]};
    for (const Axis& axis : axes_) {
      in *= axis.in;
      out *= axis.out;
      taps *= axis.kernel;
    }
  }
  int64_t depth() const { return channels * taps; }
  size_t scratch_bytes() const {
    const size_t products = std::max({dgemm_scratch(filters, out, depth(), threads),
                                      dgemm_scratch(depth(), out, filters, threads),
                                      dgemm_scratch(filters, depth(), out, threads)});
    return column_bytes() + products;
  }
  double* columns(const Args& args) const { return static_cast<double*>(args.scratch); }
  void* rest(const Args& args) const { return static_cast<char*>(args.scratch) + column_bytes(); }

  // Of the channels of one group of an image: row by channel and tap, column by place of y.
  void gather(const double* x, double* to) const {
    each_row([&](int64_t row, int64_t channel, const int64_t (&tap)[3]) {
      double* column = to + row * out;
      each_place(tap, [&](int64_t at, int64_t from) {
        column[at] = from < 0 ? 0.0 : x[channel * in + from];
      });
    });
  }
  // The transpose of gather, added: rows of one channel are one thread's.
  void scatter(const double* columns, double* x) const {
    each_row([&](int64_t row, int64_t channel, const int64_t (&tap)[3]) {
      const double* column = columns + row * out;
      each_place(tap, [&](int64_t at, int64_t to) {
        if (to >= 0) x[channel * in + to] += column[at];
      });
    });
  }

  int64_t images, groups, channels, filters;
  int64_t in = 1, out = 1, taps = 1;
  int threads;

 private:
  size_t column_bytes() const {
    return (static_cast<size_t>(depth() * out) * sizeof(double) + 63) / 64 * 64;
  }

  template <class F>
  void each_row(F f) const {
    parallel_for(channels, depth() * out, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin * taps; row < end * taps; ++row) {
        int64_t rest = row % taps;
        int64_t tap[3];
        for (size_t i = 3; i-- > 0; rest /= axes_[i].kernel) tap[i] = rest % axes_[i].kernel;
        f(row, row / taps, tap);
      }
    });
  }

  // f(place in y, place in x's plane or -1 where the window is over its edge).
  template <class F>
  void each_place(const int64_t (&tap)[3], F f) const {
    const auto& [a, b, c] = axes_;
    int64_t at = 0;
    for (int64_t i = 0; i < a.out; ++i) {
      const int64_t p = i * a.stride - a.before + tap[0] * a.dilation;
      for (int64_t j = 0; j < b.out; ++j) {
        const int64_t q = j * b.stride - b.before + tap[1] * b.dilation;
        const bool inside = p >= 0 && p < a.in && q >= 0 && q < b.in;
        for (int64_t k = 0; k < c.out; ++k, ++at) {
          const int64_t r = k * c.stride - c.before + tap[2] * c.dilation;
          f(at, inside && r >= 0 && r < c.in ? (p * b.in + q) * c.in + r : -1);
        }
      }
    }
  }

  Axis axes_[3];
};

// f(image and group, group) for all of them.
template <class F>
void each_group(const Columns& c, F f) {
  for (int64_t at = 0; at < c.images * c.groups; ++at) f(at, at % c.groups);
}

void start(double* to, const double* bias, int64_t planes, int64_t channels, int64_t size) {
  for (int64_t plane = 0; plane < planes; ++plane)
    std::fill_n(to + plane * size, size, bias ? bias[plane % channels] : 0.0);
}

}  // namespace

std::unique_ptr<Kernel> double_conv(const DoubleConv& conv, bool bias) {
  const Columns c(conv);
  return make_kernel(
      "Conv",
      [=](const Args& args) {
        auto* y = output<double>(args);
        const int64_t all = c.groups * c.filters;
        start(y, bias ? input<double>(args, 2) : nullptr, c.images * all, all, c.out);
        each_group(c, [&](int64_t at, int64_t group) {
          c.gather(input<double>(args, 0) + at * c.channels * c.in, c.columns(args));
          const double* w = input<double>(args, 1) + group * c.filters * c.depth();
          dgemm(c.filters, c.out, c.depth(), 1.0, {w, c.depth(), 1}, {c.columns(args), c.out, 1},
                y + at * c.filters * c.out, c.threads, c.rest(args));
        });
      },
      c.scratch_bytes());
}

std::unique_ptr<Kernel> double_conv_grad_x(const DoubleConv& conv, bool bias) {
  const Columns c(conv);
  return make_kernel(
      "ConvGradX",
      [=](const Args& args) {
        auto* x = output<double>(args);
        const int64_t all = c.groups * c.channels;
        start(x, bias ? input<double>(args, 2) : nullptr, c.images * all, all, c.in);
        each_group(c, [&](int64_t at, int64_t group) {
          const double* w = input<double>(args, 1) + group * c.filters * c.depth();
          const double* y = input<double>(args, 0) + at * c.filters * c.out;
          std::fill_n(c.columns(args), c.depth() * c.out, 0.0);
          dgemm(c.depth(), c.out, c.filters, 1.0, {w, 1, c.depth()}, {y, c.out, 1}, c.columns(args),
                c.threads, c.rest(args));
          c.scatter(c.columns(args), x + at * c.channels * c.in);
        });
      },
      c.scratch_bytes());
}

std::unique_ptr<Kernel> double_conv_grad_w(const DoubleConv& conv) {
  const Columns c(conv);
  return make_kernel(
      "ConvGradW",
      [=](const Args& args) {
        auto* w = output<double>(args);
        std::fill_n(w, c.groups * c.filters * c.depth(), 0.0);
        each_group(c, [&](int64_t at, int64_t group) {
          c.gather(input<double>(args, 1) + at * c.channels * c.in, c.columns(args));
          const double* y = input<double>(args, 0) + at * c.filters * c.out;
          dgemm(c.filters, c.depth(), c.out, 1.0, {y, c.out, 1}, {c.columns(args), 1, c.out},
                w + group * c.filters * c.depth(), c.threads, c.rest(args));
        });
      },
      c.scratch_bytes());
}

}  // namespace ort::cpu
