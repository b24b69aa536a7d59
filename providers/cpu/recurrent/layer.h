// What the kernels of recurrent layers share. The input's part of all gates is one product for all
// steps; each step then adds the state's part.
#pragma once

#include <algorithm>
#include <cstring>

#include "csrc/core/parallel.h"
#include "csrc/ops/recurrent/layer.h"
#include "providers/cpu/recurrent/products.h"
#include "providers/cpu/tile/tile.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {

// T steps of B rows: x [T, B, I], y [T, D, B, H], a state [D, B, H]; or each with its batch first.
struct Layer {
  int64_t T, B, I, D, H, G;  // G gates
  bool reverse, batch_first;
  std::string op, node;

  bool reversed(int64_t d) const { return reverse || d == 1; }
  // The step that is n-th in the direction's order.
  int64_t step(int64_t d, int64_t n) const { return reversed(d) ? T - 1 - n : n; }
  // The row of sequence b, and from there to the next sequence's.
  int64_t x_row(int64_t t, int64_t b) const { return batch_first ? b * T + t : t * B + b; }
  int64_t y_row(int64_t t, int64_t d, int64_t b) const {
    return batch_first ? (b * T + t) * D + d : (t * D + d) * B + b;
  }
  int64_t state_row(int64_t d, int64_t b) const { return batch_first ? b * D + d : d * B + b; }
  int64_t x_apart() const { return batch_first ? T : 1; }
  int64_t state_apart() const { return batch_first ? D : 1; }
  int64_t rows() const { return T * B; }
  int64_t states() const { return D * B * H; }

  template <class N>
  Rows<N> x_rows(N* numbers, int64_t t, int64_t width) const {
    return {numbers + x_row(t, 0) * width, x_apart() * width};
  }
  template <class N>
  Rows<N> state_rows(N* numbers, int64_t d) const {
    return {numbers + state_row(d, 0) * H, state_apart() * H};
  }
};

inline Layer layer_of(const Request& r, const Sizes& xs, const Sizes& rs, int64_t gates) {
  const std::string direction = r.attrs().s("direction", "forward");
  const bool batch_first = r.attrs().i("layout", 0) == 1;
  return {xs[batch_first ? 1 : 0],
          xs[batch_first ? 0 : 1],
          xs[2],
          direction == "bidirectional" ? 2 : 1,
          rs[2],
          gates,
          direction == "reverse",
          batch_first,
          r.node().qualified(),
          r.node().describe()};
}

inline Layer layer_of(const Request& r, size_t x, int64_t gates) {
  const Sizes &xs = r.sizes(x), &ws = r.sizes(x + 1), &rs = r.sizes(x + 2);
  const std::string direction = r.attrs().s("direction", "forward");
  const Layer l = layer_of(r, xs, rs, gates);
  if (ws != Sizes{l.D, gates * l.H, l.I} || rs != Sizes{l.D, gates * l.H, l.H})
    r.refuse("x has shape {}, w {}, r {}, which direction {} does not fit", xs, ws, rs, direction);
  return l;
}

// How many steps each row of the batch has; null: all of them.
class Lengths {
 public:
  Lengths(const Layer& l, const int32_t* lengths) : lengths_(lengths) {
    for (int64_t b = 0; lengths && b < l.B; ++b)
      if (lengths[b] < 0 || lengths[b] > l.T)
        fail("[{}] sequence length {} is not in 0 to {}; {}", l.op, lengths[b], l.T, l.node);
  }
  bool has(int64_t b, int64_t t) const { return !lengths_ || t < lengths_[b]; }
  int64_t of(const Layer& l, int64_t b) const { return lengths_ ? lengths_[b] : l.T; }
  // y's row of the step before a direction's n-th one; negative: there was the initial state.
  int64_t row_before(const Layer& l, int64_t d, int64_t n, int64_t b) const {
    if (n == 0) return -1;
    const int64_t t = l.step(d, n - 1);
    return has(b, t) ? l.y_row(t, d, b) : -1;
  }

  // ONNX does not say what the last state of no steps is; onnxruntime has zeros.
  template <class T>
  void forget_empty(const Layer& l, int64_t d, T* state) const {
    if (!lengths_ && l.T > 0) return;
    for (int64_t b = 0; b < l.B; ++b)
      if (!lengths_ || lengths_[b] == 0) std::fill_n(state + l.state_row(d, b) * l.H, l.H, T{});
  }

 private:
  const int32_t* lengths_;
};

constexpr int64_t kGateWork = 30;  // an element of a gate row, in parallel_for's units

template <class F>
void each_row(const Layer& l, F&& f) {
  parallel_for(l.B, l.B * l.H * kGateWork, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) f(b);
  });
}

// Numbers up to the next cache line, where packed matrices start.
inline int64_t whole_lines(int64_t numbers) {
  return (numbers + 15) / 16 * 16;
}

template <class T>
void start_state(const Layer& l, int64_t d, const T* from, T* to) {
  for (int64_t b = 0; b < l.B; ++b) {
    const int64_t at = l.state_row(d, b) * l.H;
    if (from)
      std::copy(from + at, from + at + l.H, to + at);
    else
      std::fill_n(to + at, l.H, T{});
  }
}

// sums [T B, G H] = x w + bias, of one direction; `recurrent`: how many numbers of the second bias
// are added too.
template <class T>
void sums_of_inputs(const Layer& l, int64_t d, const T* x, const T* w, const T* packed, const T* b,
                    int64_t recurrent, T* sums) {
  const int64_t width = l.G * l.H;
  std::vector<T> bias(static_cast<size_t>(width));
  for (int64_t k = 0; b && k < width; ++k)
    bias[static_cast<size_t>(k)] =
        b[d * 2 * width + k] + (k < recurrent ? b[(d * 2 + 1) * width + k] : T{});
  gemm(Gemm<T>{.m = l.rows(),
               .n = width,
               .k = l.I,
               .a = stored(x, l.I),
               .b = stored(w + d * width * l.I, l.I, true),
               .c = sums,
               .c_row = width,
               .start = bias.data(),
               .start_row = 0,
               .packed = packed});
}

template <class T>
void sum_rows(int64_t rows, int64_t width, const T* numbers, T* sums) {
  std::fill_n(sums, width, T{});
  parallel_for(width, rows * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = begin; k < end; ++k) sums[k] += numbers[row * width + k];
  });
}

// The gradients of x, w and of the sums' bias from the slopes of all sums [T B, G H].
template <class T>
void gradients_of_inputs(const Layer& l, int64_t d, const T* slopes, const T* x, const T* w, T* dx,
                         T* dw, T* db) {
  const int64_t width = l.G * l.H;
  product_of_steps(l.rows(), l.I, width, slopes, false, w + d * width * l.I, false, d > 0, dx);
  product_of_steps(width, l.I, l.rows(), slopes, true, x, false, false, dw + d * width * l.I);
  sum_rows(l.rows(), width, slopes, db + d * 2 * width);
}

// Memory of a call by parts, outputs that nobody wants among them.
class Scratch {
 public:
  // Where `numbers` begin, at a whole cache line.
  int64_t take(int64_t numbers) {
    const int64_t at = taken_;
    taken_ += whole_lines(numbers);
    return at;
  }
  // -1: the output has memory of its own.
  int64_t take_unwanted(const Request& r, size_t output, int64_t numbers) {
    return r.wants(output) ? -1 : take(numbers);
  }
  size_t bytes(size_t each) const { return static_cast<size_t>(taken_) * each; }

 private:
  int64_t taken_ = 0;
};

// The gradients of x, w, r, b and of each state; those that nobody wants go to scratch memory.
class GradientPlaces {
 public:
  GradientPlaces(const Request& r, const Layer& l, int64_t states, Scratch& scratch) {
    const int64_t rows = l.D * l.G * l.H;
    std::vector<int64_t> counts{l.rows() * l.I, rows * l.I, rows * l.H, rows * 2};
    counts.insert(counts.end(), static_cast<size_t>(states), l.states());
    for (const int64_t count : counts)
      places_.push_back(scratch.take_unwanted(r, places_.size(), count));
  }
  template <class T>
  T* get(const Args& args, size_t output) const {
    const int64_t place = places_[output];
    return place < 0 ? ort::output<T>(args, output) : static_cast<T*>(args.scratch) + place;
  }

 private:
  std::vector<int64_t> places_;  // -1: the output has memory of its own
};

using RecurrentKernel = std::unique_ptr<Kernel>(const Request&);

// Halves are widened once a call: each step adds to a state that stays float32.
inline void add_steps(KernelList& list, When when, RecurrentKernel of_float,
                      RecurrentKernel of_double) {
  list.add("steps", kF32, when, of_float)
      .add("steps", kF64, when, of_double)
      .add("widened", kF32 | kHalves, when,
           [of_float](const Request& r) { return widened(r, of_float); });
}

}  // namespace ort::cpu
