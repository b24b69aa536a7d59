// Pooling over [N, C, D1..D3] and its gradients: one plane of one image at a time. ONNX's flat
// indices of maxima are not what oneDNN keeps, so these are loops of our own. Halves are converted
// a plane at a time. Channels that come in blocks are taken by pool_blocks.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/cpu/conv/folded_planes.h"
#include "providers/cpu/conv/maxima.h"
#include "providers/cpu/conv/planes.h"
#include "providers/cpu/conv/pool_blocks.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

// Calls f(begin, end, start) for every tap along a line: windows [begin, end) have it inside the
// line, window c at start + c * stride.
template <class F>
void each_place(const Planes& p, F f) {
  const int64_t stride = p.stride[2];
  for (int64_t c = 0; c < p.kernel[2]; ++c) {
    const int64_t start = c * p.dilation[2] - p.before[2];  // of window 0
    const int64_t begin = start < 0 ? (-start + stride - 1) / stride : 0;
    const int64_t end = start < p.in[2] ? (p.in[2] - 1 - start) / stride + 1 : 0;
    if (begin < std::min(end, p.out[2])) f(begin, std::min(end, p.out[2]), start);
  }
}

// Both: a window meets its taps in their order.
template <class F>
void each_tap(const Planes& p, const Taps& depth, const Taps& height, F f) {
  each_line(p, depth, height, [&](int64_t line) {
    each_place(p, [&](int64_t begin, int64_t end, int64_t start) { f(begin, end, line + start); });
  });
}

using cpu::take_maxima;  // of float

void take_maxima(const double* from, int64_t stride, int64_t place, int64_t count, double* best,
                 int64_t* at) {
  for (int64_t c = 0; c < count; ++c) {
    const double value = from[c * stride];
    if (at[c] >= 0 && !(value > best[c]) && !std::isnan(value)) continue;
    best[c] = value;
    at[c] = place + c * stride;
  }
}

// A NaN is a maximum.
template <class T>
void max_of_plane(const Planes& p, const T* x, T* y, int64_t* index, int64_t start) {
  using Place = std::conditional_t<std::is_same_v<T, float>, int32_t, int64_t>;
  std::vector<T> best(static_cast<size_t>(p.out[2]));
  std::vector<Place> place(best.size());
  each_row(p, [&](int64_t at, const Taps& depth, const Taps& height) {
    std::fill(best.begin(), best.end(), -std::numeric_limits<T>::infinity());
    std::fill(place.begin(), place.end(), Place{-1});
    each_tap(p, depth, height, [&](int64_t begin, int64_t end, int64_t offset) {
      const int64_t first = offset + begin * p.stride[2];
      take_maxima(x + first, p.stride[2], static_cast<Place>(first), end - begin,
                  best.data() + begin, place.data() + begin);
    });
    if (y) std::copy(best.begin(), best.end(), y + at);
    for (size_t c = 0; c < place.size(); ++c)
      index[at + static_cast<int64_t>(c)] = start + place[c];
  });
}

// Maxima of windows alone.
template <class T>
std::unique_ptr<Kernel> plain_max_pool(const Request& r, const Planes& p) {
  const Folded<T> folded(p, TileOp::max, -std::numeric_limits<T>::infinity());
  return each_plane<T>(
      "MaxPool", r, p.filled(), p.in_size(), p.out_size(), p.count * folded.work(),
      [=](const Args&, int64_t, const T* x, T* y, T* spare) {
        folded.each_row(x, spare, [&](int64_t at, const T* row) {
          take_every(p.stride[2], row, p.out[2], y + at);
        });
      },
      folded.buffer());
}

// Over blocks of channels where they come so; else null.
template <class T>
std::unique_ptr<Kernel> if_float(const Request& r,
                                 std::unique_ptr<Kernel> (*make)(const Request&)) {
  return std::is_same_v<T, float> ? make(r) : nullptr;
}

// Flat places of a plane, counted along the first axis first.
void by_column(const Planes& p, int64_t start, int64_t count, int64_t* index) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = index[i] - start, row = at / p.in[2];
    const int64_t column = at % p.in[2] * p.in[1] + row % p.in[1];
    index[i] = start + column * p.in[0] + row / p.in[1];
  }
}

template <class T>
std::unique_ptr<Kernel> max_pool(const Request& r) {
  const bool columns = r.attrs().i("storage_order") != 0 && r.wants(1);
  auto blocks = columns ? nullptr : if_float<T>(r, max_pool_blocks);
  if (blocks) return blocks;
  const Planes p = planes_of(r, r.sizes(0), r.wants(0) ? r.out(0).sizes : r.out(1).sizes);
  const bool wants_index = r.wants(1);
  if (!wants_index) return plain_max_pool<T>(r, p);
  const int64_t in = p.in_size(), out = p.out_size();
  if (std::is_same_v<T, float> && in > std::numeric_limits<int32_t>::max())
    r.refuse("a plane has {} elements, expected at most {}", in,
             std::numeric_limits<int32_t>::max());
  return each_plane<T>("MaxPool", r, p.filled(), in, out, p.count * out * p.window(),
                       [=](const Args& args, int64_t plane, const T* x, T* y, T*) {
                         int64_t* index = output<int64_t>(args, 1) + plane * out;
                         max_of_plane(p, x, y, index, plane * in);
                         if (columns) by_column(p, plane * in, out, index);
                       });
}

// Windows stay within their plane, so planes can be summed by different threads.
template <class T>
std::unique_ptr<Kernel> max_pool_grad(const Request& r) {
  if (auto blocks = if_float<T>(r, max_pool_grad_blocks)) return blocks;
  const Sizes x = r.out().sizes, y = r.sizes(0);
  const int64_t planes = y[0] * y[1], in = planes == 0 ? 0 : element_count(x) / planes;
  const int64_t out = planes == 0 ? 0 : element_count(y) / planes;
  return each_plane<T>("MaxPoolGrad", r, planes, out, in, planes * (in + out),
                       [=](const Args& args, int64_t plane, const T* dy, T* dx, T*) {
                         std::fill_n(dx, in, T{});
                         const int64_t* index = input<int64_t>(args, 1) + plane * out;
                         for (int64_t i = 0; i < out; ++i) {
                           dx[place_in_plane(index[i], plane, in)] += dy[i];
                         }
                       });
}

// Element operations: a vector adds some eight numbers of lines.
int64_t average_work(const Planes& p) {
  const int64_t lines = std::min(p.kernel[0], p.in[0]) * std::min(p.kernel[1], p.in[1]);
  const int64_t taps = std::min(p.kernel[2], p.in[2]);
  return p.count * p.out[0] * p.out[1] * (lines * p.in[2] / 8 + taps * p.out[2]);
}

// Lines are added to each other, then their sums to the windows: a window of 7 by 7 takes 14
// additions, 7 of them for many windows at once.
template <class T>
class Averages {
 public:
  explicit Averages(const Planes& p)
      : p_(p), folded_(p, TileOp::add, T{}), folds_(p.count * folded_.work() < average_work(p)) {
    each_place(p, [&](int64_t begin, int64_t end, int64_t start) {
      taps_.push_back({begin, end, start});
    });
    if (p.filled() == 0) return;
    for (int64_t c = 0; c < p.out[2]; ++c)
      counts_.push_back(static_cast<T>(count(taps_of(p, 2, c))));
    each_row(p, [&](int64_t, const Taps& depth, const Taps& height) {
      rows_.push_back(taps_in(depth, height));
    });
  }
  int64_t buffer() const { return p_.in[2] + p_.out[2] + (folds_ ? folded_.buffer() : 0); }

  void forward(const T* x, T* y, T* line) const {
    if (one_window_) {
      T sum{};
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < p_.in_size(); ++i) sum += x[i];
      *y = sum / static_cast<T>(p_.in_size());
      return;
    }
    T* divisor = line + p_.in[2];
    if (folds_) {
      folded_.each_row(x, divisor + p_.out[2], [&](int64_t at, const T* sums) {
        take_every(p_.stride[2], sums, p_.out[2], y + at);
        divide(y + at, rows_[static_cast<size_t>(at / p_.out[2])], divisor, y + at);
      });
      return;
    }
    each_row(p_, [&](int64_t at, const Taps& depth, const Taps& height) {
      std::fill_n(line, p_.in[2], T{});
      each_line(p_, depth, height, [&](int64_t from) { add(line, x + from, p_.in[2]); });
      std::fill_n(y + at, p_.out[2], T{});
      for (const auto& [begin, end, start] : taps_)
        if (p_.stride[2] == 1)
          add(y + at + begin, line + start + begin, end - begin);
        else
          for (int64_t c = begin; c < end; ++c) y[at + c] += line[start + c * p_.stride[2]];
      divide(y + at, taps_in(depth, height), divisor, y + at);
    });
  }

  void backward(const T* dy, T* dx, T* line) const {
    T* share = line + p_.in[2];
    std::fill_n(dx, p_.in_size(), T{});
    each_row(p_, [&](int64_t at, const Taps& depth, const Taps& height) {
      divide(dy + at, taps_in(depth, height), share, share);
      std::fill_n(line, p_.in[2], T{});
      for (const auto& [begin, end, start] : taps_)
        if (p_.stride[2] == 1)
          add(line + start + begin, share + begin, end - begin);
        else
          for (int64_t c = begin; c < end; ++c) line[start + c * p_.stride[2]] += share[c];
      each_line(p_, depth, height, [&](int64_t to) { add(dx + to, line, p_.in[2]); });
    });
  }

 private:
  struct Place {
    int64_t begin, end, start;
  };
  int64_t count(const Taps& t) const { return p_.include_pad ? t.padded : t.last - t.first; }

  T taps_in(const Taps& depth, const Taps& height) const {
    return static_cast<T>(count(depth) * count(height));
  }

  // A row of windows by what each has of taps, which goes to `divisor` first.
  void divide(const T* sums, T rows, T* divisor, T* to) const {
#pragma omp simd
    for (int64_t c = 0; c < p_.out[2]; ++c) {
      divisor[c] = std::max(rows * counts_[static_cast<size_t>(c)], T{1});
      to[c] = sums[c] / divisor[c];
    }
  }
  // Lines are short: a call of vector code would take longer.
  static void add(T* to, const T* from, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }

  // The window is the plane.
  static bool is_one_window(const Planes& p) {
    const auto same = [&](const int64_t (&a)[3], const int64_t (&b)[3]) {
      return std::equal(a, a + 3, b);
    };
    const int64_t none[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
    return p.out_size() == 1 && same(p.kernel, p.in) && same(p.dilation, ones) &&
           same(p.before, none) && same(p.after, none);
  }

  Planes p_;
  Folded<T> folded_;
  bool folds_;  // where strides skip much, lines of windows are less work
  bool one_window_ = is_one_window(p_);
  std::vector<Place> taps_;  // along a line
  std::vector<T> counts_;    // of taps of each window along a line
  std::vector<T> rows_;      // of lines of each row of windows
};

template <class T>
std::unique_ptr<Kernel> average_pool(const Request& r) {
  if (auto blocks = if_float<T>(r, average_pool_blocks)) return blocks;
  const Planes p = planes_of(r, r.sizes(0), r.out().sizes);
  const Averages<T> averages(p);
  return each_plane<T>(
      "AveragePool", r, p.filled(), p.in_size(), p.out_size(), average_work(p),
      [=](const Args&, int64_t, const T* x, T* y, T* spare) { averages.forward(x, y, spare); },
      averages.buffer());
}

template <class T>
std::unique_ptr<Kernel> average_pool_grad(const Request& r) {
  if (auto blocks = if_float<T>(r, average_pool_grad_blocks)) return blocks;
  const Planes p = planes_of(r, r.out().sizes, r.sizes(0));
  const Averages<T> averages(p);
  return each_plane<T>(
      "AveragePoolGrad", r, p.count, p.out_size(), p.in_size(), average_work(p),
      [=](const Args&, int64_t, const T* dy, T* dx, T* spare) { averages.backward(dy, dx, spare); },
      averages.buffer());
}

Verdict few_axes(const Node& node) {
  const auto& dims = node.input(0).type().dims;
  return require(dims && dims->size() >= 3 && dims->size() <= 5,
                 "expected 1 to 3 spatial axes of known rank");
}

template <class Float, class Double>
void add_planes(KernelList& list, When when, Float float_kernel, Double double_kernel) {
  list.take_layouts();
  list.add("planes", kF32 | kHalves, when, float_kernel).add("planes", kF64, when, double_kernel);
}

}  // namespace

static void register_pool(KernelTable& table) {
  add_planes(table.op("MaxPool"), few_axes, max_pool<float>, max_pool<double>);
  add_planes(table.op("ort::MaxPoolGrad"), nullptr, max_pool_grad<float>, max_pool_grad<double>);
  add_planes(table.op("AveragePool"), few_axes, average_pool<float>, average_pool<double>);
  add_planes(table.op("ort::AveragePoolGrad"), few_axes, average_pool_grad<float>,
             average_pool_grad<double>);
}

const Family<KernelTable> kPoolKernels("cpu", "pool", register_pool);

}  // namespace ort::cpu
