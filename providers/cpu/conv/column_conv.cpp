// Image by image and group by group: [O / g, C / g K] times [C / g K, E], or their transposes;
// where a channel has one filter, tap by tap, without columns.
#include "providers/cpu/conv/column_conv.h"

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/product/gemm.h"

namespace ort::cpu {
namespace {

// One axis of a window over an image; missing leading ones have size 1.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, before = 0;
};

class Columns {
 public:
  explicit Columns(const ColumnConv& c)
      : images(c.x[0]), groups(c.group), channels(c.x[1] / c.group), filters(c.w[0] / c.group) {
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
  template <class T>
  size_t scratch_bytes() const {
    return static_cast<size_t>(depth() * out) * sizeof(T);
  }

  // Of the channels of one group of an image: row by channel and tap, column by place of y.
  template <class T>
  void gather(const T* x, T* to) const {
    each_row([&](int64_t row, int64_t channel, const int64_t (&tap)[3]) {
      T* column = to + row * out;
      const T* plane = x + channel * in;
      each_run(tap, [&](Run run, int64_t stride) {
        std::fill_n(column + run.at, run.first, T{});
        T* inside = column + run.at + run.first;
        const T* from = plane + run.place;
        const int64_t count = run.last - run.first;
        if (stride == 1)
          std::copy_n(from, count, inside);
        else
          for (int64_t i = 0; i < count; ++i) inside[i] = from[i * stride];
        std::fill_n(column + run.at + run.last, run.count - run.last, T{});
      });
    });
  }
  // The transpose of gather, added: rows of one channel are one thread's.
  template <class T>
  void scatter(const T* columns, T* x) const {
    each_row([&](int64_t row, int64_t channel, const int64_t (&tap)[3]) {
      const T* column = columns + row * out;
      T* plane = x + channel * in;
      each_run(tap, [&](Run run, int64_t stride) {
        T* to = plane + run.place;
        for (int64_t k = run.first; k < run.last; ++k, to += stride) *to += column[run.at + k];
      });
    });
  }

  // Elements of a row of y over which a tap is inside x's plane, there from `place` on.
  struct TapRun {
    int64_t tap, at, place, count;
  };
  std::vector<TapRun> tap_runs() const {
    std::vector<TapRun> found;
    for (int64_t at = 0; at < taps; ++at) {
      int64_t tap[3];
      find_tap(at, tap);
      each_run(tap, [&](Run run, int64_t) {
        if (run.first < run.last)
          found.push_back({at, run.at + run.first, run.place, run.last - run.first});
      });
    }
    return found;
  }
  bool is_depthwise() const {
    constexpr int64_t kMostRuns = 1 << 20;  // that a kernel keeps
    return channels == 1 && filters == 1 && taps * (out / axes_[2].out) <= kMostRuns;
  }
  int64_t step() const { return axes_[2].stride; }  // between elements of x's row

  int64_t images, groups, channels, filters;
  int64_t in = 1, out = 1, taps = 1;

 private:
  void find_tap(int64_t at, int64_t (&tap)[3]) const {
    for (size_t i = 3; i-- > 0; at /= axes_[i].kernel) tap[i] = at % axes_[i].kernel;
  }

  template <class F>
  void each_row(F f) const {
    parallel_for(channels, depth() * out, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin * taps; row < end * taps; ++row) {
        int64_t tap[3];
        find_tap(row % taps, tap);
        f(row, row / taps, tap);
      }
    });
  }

  // A row of y from `at` on, `count` wide. From `first` to before `last` the tap is inside x's
  // plane, at `place` and then each stride on; elsewhere it is over an edge.
  struct Run {
    int64_t at, count, first, last, place;
  };
  // f(run, stride) for each row of y.
  template <class F>
  void each_run(const int64_t (&tap)[3], F f) const {
    const auto& [a, b, c] = axes_;
    const int64_t start = tap[2] * c.dilation - c.before;
    const int64_t first = std::min(c.out, start < 0 ? (c.stride - 1 - start) / c.stride : 0);
    const int64_t end = start < c.in ? (c.in - 1 - start) / c.stride + 1 : 0;
    const int64_t last = std::max(first, std::min(c.out, end));
    int64_t at = 0;
    for (int64_t i = 0; i < a.out; ++i) {
      const int64_t p = i * a.stride - a.before + tap[0] * a.dilation;
      for (int64_t j = 0; j < b.out; ++j, at += c.out) {
        const int64_t q = j * b.stride - b.before + tap[1] * b.dilation;
        if (p < 0 || p >= a.in || q < 0 || q >= b.in || first == last)
          f(Run{at, c.out, c.out, c.out, 0}, c.stride);
        else
          f(Run{at, c.out, first, last, (p * b.in + q) * c.in + start + first * c.stride},
            c.stride);
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

template <class T>
void start(T* to, const T* bias, int64_t planes, int64_t channels, int64_t size) {
  for (int64_t plane = 0; plane < planes; ++plane)
    std::fill_n(to + plane * size, size, bias ? bias[plane % channels] : T{});
}

// --- a filter a channel: planes by planes, tap by tap, which is no product ---

// f(plane, channel) for all of them, on threads.
template <class F>
void each_column_plane(const Columns& c, size_t runs, F f) {
  const int64_t planes = c.images * c.groups;
  const auto work = planes * (c.in + c.out + static_cast<int64_t>(runs) * 4);
  parallel_for(planes, work, [&](int64_t begin, int64_t end, int) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane, plane % c.groups);
  });
}

template <class T>
std::unique_ptr<Kernel> depthwise(const Columns& c, bool bias) {
  return make_kernel("Conv", [=, runs = c.tap_runs(), step = c.step()](const Args& args) {
    each_column_plane(c, runs.size(), [&](int64_t plane, int64_t channel) {
      const T *x = input<T>(args, 0) + plane * c.in, *w = input<T>(args, 1) + channel * c.taps;
      T* y = output<T>(args) + plane * c.out;
      std::fill_n(y, c.out, bias ? input<T>(args, 2)[channel] : T{});
      for (const auto& [tap, at, place, count] : runs)
        for (int64_t i = 0; i < count; ++i) y[at + i] += w[tap] * x[place + i * step];
    });
  });
}

template <class T>
std::unique_ptr<Kernel> depthwise_grad_x(const Columns& c, bool bias) {
  return make_kernel("ConvGradX", [=, runs = c.tap_runs(), step = c.step()](const Args& args) {
    each_column_plane(c, runs.size(), [&](int64_t plane, int64_t channel) {
      const T *y = input<T>(args, 0) + plane * c.out, *w = input<T>(args, 1) + channel * c.taps;
      T* x = output<T>(args) + plane * c.in;
      std::fill_n(x, c.in, bias ? input<T>(args, 2)[channel] : T{});
      for (const auto& [tap, at, place, count] : runs)
        for (int64_t i = 0; i < count; ++i) x[place + i * step] += w[tap] * y[at + i];
    });
  });
}

template <class T>
void add_taps(const T* x, const T* y, const std::vector<Columns::TapRun>& runs, int64_t step,
              double* sums) {
  for (const auto& [tap, at, place, count] : runs) {
    T sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += y[at + i] * x[place + i * step];
    sums[tap] += sum;
  }
}

// A channel is one thread's; its sums over the images are doubles.
template <class T>
std::unique_ptr<Kernel> depthwise_grad_w(const Columns& c) {
  const auto run = [=, runs = c.tap_runs(), step = c.step()](const Args& args) {
    auto* all = static_cast<double*>(args.scratch);
    std::fill_n(all, c.groups * c.taps, 0.0);
    const auto work = c.images * c.groups * (c.in + static_cast<int64_t>(runs.size()) * 4);
    parallel_for(c.groups, work, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = 0; at < c.images * (end - begin); ++at) {
        const int64_t channel = begin + at % (end - begin);
        const int64_t plane = at / (end - begin) * c.groups + channel;
        add_taps(input<T>(args, 1) + plane * c.in, input<T>(args, 0) + plane * c.out, runs, step,
                 all + channel * c.taps);
      }
      T* w = output<T>(args);
      std::copy(all + begin * c.taps, all + end * c.taps, w + begin * c.taps);
    });
  };
  const size_t bytes = static_cast<size_t>(c.groups * c.taps) * sizeof(double);
  return make_kernel("ConvGradW", run, bytes);
}

}  // namespace

template <class T>
std::unique_ptr<Kernel> column_conv(const ColumnConv& conv, bool bias) {
  const Columns c(conv);
  if (c.is_depthwise()) return depthwise<T>(c, bias);
  return make_kernel(
      "Conv",
      [=](const Args& args) {
        T *y = output<T>(args), *columns = static_cast<T*>(args.scratch);
        const int64_t all = c.groups * c.filters;
        start(y, bias ? input<T>(args, 2) : nullptr, c.images * all, all, c.out);
        each_group(c, [&](int64_t at, int64_t group) {
          c.gather(input<T>(args, 0) + at * c.channels * c.in, columns);
          const T* w = input<T>(args, 1) + group * c.filters * c.depth();
          T* to = y + at * c.filters * c.out;
          gemm({c.filters, c.out, c.depth(), stored(w, c.depth()), stored<T>(columns, c.out), to,
                c.out, T{1}, to, c.out});
        });
      },
      c.scratch_bytes<T>());
}

template <class T>
std::unique_ptr<Kernel> column_conv_grad_x(const ColumnConv& conv, bool bias) {
  const Columns c(conv);
  if (c.is_depthwise()) return depthwise_grad_x<T>(c, bias);
  return make_kernel(
      "ConvGradX",
      [=](const Args& args) {
        T *x = output<T>(args), *columns = static_cast<T*>(args.scratch);
        const int64_t all = c.groups * c.channels;
        start(x, bias ? input<T>(args, 2) : nullptr, c.images * all, all, c.in);
        each_group(c, [&](int64_t at, int64_t group) {
          const T* w = input<T>(args, 1) + group * c.filters * c.depth();
          const T* y = input<T>(args, 0) + at * c.filters * c.out;
          gemm({c.depth(), c.out, c.filters, stored(w, c.depth(), true), stored(y, c.out), columns,
                c.out});
          c.scatter(columns, x + at * c.channels * c.in);
        });
      },
      c.scratch_bytes<T>());
}

template <class T>
std::unique_ptr<Kernel> column_conv_grad_w(const ColumnConv& conv) {
  const Columns c(conv);
  if (c.is_depthwise()) return depthwise_grad_w<T>(c);
  return make_kernel(
      "ConvGradW",
      [=](const Args& args) {
        T *w = output<T>(args), *columns = static_cast<T*>(args.scratch);
        std::fill_n(w, c.groups * c.filters * c.depth(), T{});
        each_group(c, [&](int64_t at, int64_t group) {
          c.gather(input<T>(args, 1) + at * c.channels * c.in, columns);
          const T* y = input<T>(args, 0) + at * c.filters * c.out;
          T* to = w + group * c.filters * c.depth();
          gemm({c.filters, c.depth(), c.out, stored(y, c.out), stored<T>(columns, c.out, true), to,
                c.depth(), T{1}, to, c.depth()});
        });
      },
      c.scratch_bytes<T>());
}

template std::unique_ptr<Kernel> column_conv<float>(const ColumnConv&, bool);
template std::unique_ptr<Kernel> column_conv<double>(const ColumnConv&, bool);
template std::unique_ptr<Kernel> column_conv_grad_x<float>(const ColumnConv&, bool);
template std::unique_ptr<Kernel> column_conv_grad_x<double>(const ColumnConv&, bool);
template std::unique_ptr<Kernel> column_conv_grad_w<float>(const ColumnConv&);
template std::unique_ptr<Kernel> column_conv_grad_w<double>(const ColumnConv&);

}  // namespace ort::cpu
