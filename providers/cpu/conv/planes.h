// Planes that windows run over, [N, C, D1..D3] or blocks of channels, and kernels that take one
// plane after the other. What pools share.
#pragma once

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/conv/window.h"
#include "providers/cpu/runs.h"

namespace ort::cpu {

// Planes of up to three axes; missing leading ones have size 1.
struct Planes {
  int64_t count = 0;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t before[3] = {0, 0, 0}, after[3] = {0, 0, 0};
  bool include_pad = false;
  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
  // Those with something to pool: of windows there may be none, and any number along another axis.
  int64_t filled() const { return out_size() == 0 ? 0 : count; }
  int64_t window() const {  // taps inside the input
    return std::min(kernel[0], in[0]) * std::min(kernel[1], in[1]) * std::min(kernel[2], in[2]);
  }
};

inline Planes planes_of(const Request& r, const Sizes& x, const Sizes& y) {
  const Window w = window_of(r, x, y, r.attrs().ints("kernel_shape"));
  Planes p;
  p.count = x[0] * x[1];
  p.include_pad = r.attrs().i("count_include_pad", 0) != 0;
  const size_t n = x.size() - 2;
  for (size_t i = 0; i < n; ++i) {
    const size_t to = 3 - n + i;
    p.in[to] = x[2 + i];
    p.out[to] = y[2 + i];
    p.kernel[to] = w.kernel[i];
    p.stride[to] = w.strides[i];
    p.dilation[to] = w.dilations[i];
    p.before[to] = w.before[i];
    p.after[to] = w.after[i];
  }
  return p;
}

// The taps of window `at` along an axis that lie inside the input: [first, last), and those inside
// the padded input.
struct Taps {
  int64_t start, first, last, padded;
};

inline Taps taps_of(const Planes& p, int axis, int64_t at) {
  Taps t{};
  t.start = at * p.stride[axis] - p.before[axis];
  const auto below = [&](int64_t end) {  // taps k with start + k * dilation < end
    const int64_t room = end - t.start;
    return std::clamp<int64_t>((room + p.dilation[axis] - 1) / p.dilation[axis], 0, p.kernel[axis]);
  };
  t.first = t.start < 0 ? (-t.start + p.dilation[axis] - 1) / p.dilation[axis] : 0;
  t.last = below(p.in[axis]);
  t.padded = below(p.in[axis] + p.after[axis]);
  return t;
}

// Calls f(position of its first window, taps along the first two axes) for every row of windows.
template <class F>
void each_row(const Planes& p, F f) {
  int64_t at = 0;
  for (int64_t a = 0; a < p.out[0]; ++a)
    for (int64_t b = 0; b < p.out[1]; ++b, at += p.out[2])
      f(at, taps_of(p, 0, a), taps_of(p, 1, b));
}

// Calls f(offset) for every row of the plane that a row of windows meets.
template <class F>
void each_line(const Planes& p, const Taps& depth, const Taps& height, F f) {
  for (int64_t a = depth.first; a < depth.last; ++a)
    for (int64_t b = height.first; b < height.last; ++b)
      f(((depth.start + a * p.dilation[0]) * p.in[1] + height.start + b * p.dilation[1]) * p.in[2]);
}

[[noreturn, gnu::noinline]] inline void refuse_index(int64_t index, int64_t plane, int64_t in) {
  fail("[ort::MaxPoolGrad] index {} is out of range, expected {} to {}", index, plane * in,
       (plane + 1) * in - 1);
}

// Of a flat index into all planes, each of `in` elements, its place in this one.
inline int64_t place_in_plane(int64_t index, int64_t plane, int64_t in) {
  const int64_t place = index - plane * in;
  if (place < 0 || place >= in) [[unlikely]]
    refuse_index(index, plane, in);
  return place;
}

// A kernel that makes `to` numbers of a plane of `from`; f(args, plane, source, target, spare)
// computes, with so many spare numbers.
template <class T, class F>
std::unique_ptr<Kernel> each_plane(std::string name, const Request& r, int64_t planes, int64_t from,
                                   int64_t to, int64_t work, F f, int64_t spare = 0,
                                   std::vector<Layout> in = {}, std::vector<Layout> out = {}) {
  const Runs<T> source(r, 0), target = Runs<T>::out(r, 0);
  const bool wanted = r.wants(0);
  const int most = omp_get_max_threads();
  const int64_t buffer = source.buffer(from) + target.buffer(to) + spare;
  return make_kernel(
      std::move(name),
      [=](const Args& args) {
        parallel_for(
            planes, work,
            [&](int64_t begin, int64_t end, int thread) {
              T* memory = static_cast<T*>(args.scratch) + thread * buffer;
              for (int64_t plane = begin; plane < end; ++plane) {
                const T* x = source.read(args.in[0], plane * from, from, memory);
                T* rest = memory + source.buffer(from);
                T* y = wanted ? target.room(args.out[0], plane * to, rest) : nullptr;
                f(args, plane, x, y, rest + target.buffer(to));
                if (wanted) target.write(y, args.out[0], plane * to, to);
              }
            },
            most);
      },
      std::move(in), std::move(out), static_cast<size_t>(most * buffer) * sizeof(T));
}

}  // namespace ort::cpu
