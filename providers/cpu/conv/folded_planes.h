// Windows over planes, folded one axis after the other: of a padded plane each element takes in its
// neighbours along an axis, all of them in one run of vectors. Pooling reads its windows there.
#pragma once

#include <algorithm>
#include <utility>

#include "providers/cpu/conv/planes.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {

// Of a row the elements that are a stride apart.
template <class T>
void take_every(int64_t stride, const T* from, int64_t count, T* to) {
  if (stride == 1) {
    std::copy_n(from, count, to);
  } else if (stride == 2) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

// What a fold of the windows is, for every row of them.
template <class T>
class Folded {
 public:
  // `op` is max or add; `padding` is what it leaves as it is.
  Folded(const Planes& p, TileOp op, T padding)
      : p_(p), step_(op, 0), overlaps_(op == TileOp::max), padding_(padding) {
    for (int axis = 0; axis < 3; ++axis) reach_[axis] = (p.kernel[axis] - 1) * p.dilation[axis] + 1;
    width_ = std::max(p.before[2] + p.in[2], (p.out[2] - 1) * p.stride[2] + reach_[2]);
    const int64_t line = std::max<int64_t>(reach_[0] * width_, 1);
    const int64_t most = std::max<int64_t>(kCells / line - reach_[1], 0) / p.stride[1] + 1;
    rows_ = std::clamp<int64_t>(most, 1, std::max<int64_t>(p.out[1], 1));
  }
  int64_t buffer() const { return p_.filled() > 0 ? 2 * cells(rows_) : 0; }
  // Element operations of a plane.
  int64_t work() const {
    const int64_t bands = p_.out[0] * ((p_.out[1] + rows_ - 1) / rows_);
    int64_t passes = 2;
    for (const int64_t kernel : p_.kernel)
      for (int64_t done = 1; done < kernel; done = taken(done, kernel)) ++passes;
    return bands * cells(rows_) * passes / 8;
  }

  // Calls f(position of a row's first window, where it is: the next is a stride further on).
  template <class F>
  void each_row(const T* x, T* memory, F f) const {
    int64_t at = 0;
    for (int64_t a = 0; a < p_.out[0]; ++a)
      for (int64_t b = 0; b < p_.out[1]; b += rows_) {
        const int64_t rows = std::min(rows_, p_.out[1] - b);
        const T* made = fold(
            load(x, a * p_.stride[0] - p_.before[0], b * p_.stride[1] - p_.before[1], rows, memory),
            memory, rows);
        for (int64_t r = 0; r < rows; ++r, at += p_.out[2]) f(at, made + r * width_);
      }
  }

 private:
  static constexpr int64_t kCells = 4096;  // of a band: two of them stay in the first cache

  int64_t lines(int64_t rows) const { return (rows - 1) * p_.stride[1] + reach_[1]; }
  int64_t cells(int64_t rows) const { return reach_[0] * lines(rows) * width_; }
  // How many taps two elements have together that have `done` each: the same tap may count twice.
  int64_t taken(int64_t done, int64_t kernel) const {
    return overlaps_ ? std::min(2 * done, kernel) : done + 1;
  }

  // The band's lines from `depth` and `row` on: where they lie, or a padded copy.
  const T* load(const T* x, int64_t depth, int64_t row, int64_t rows, T* memory) const {
    const int64_t count = lines(rows);
    const bool inside = width_ == p_.in[2] && p_.in[0] == 1 && reach_[0] == 1 && depth == 0 &&
                        row >= 0 && row + count <= p_.in[1];
    if (inside) return x + row * width_;
    T* to = memory;
    for (int64_t d = depth; d < depth + reach_[0]; ++d)
      for (int64_t r = row; r < row + count; ++r, to += width_) {
        if (d < 0 || d >= p_.in[0] || r < 0 || r >= p_.in[1]) {
          std::fill_n(to, width_, padding_);
          continue;
        }
        T* end = std::fill_n(to, p_.before[2], padding_);
        end = std::copy_n(x + (d * p_.in[1] + r) * p_.in[2], p_.in[2], end);
        std::fill(end, to + width_, padding_);
      }
    return memory;
  }

  // What a pass reads, and the two places where it and the next write.
  struct Passes {
    const T* from;
    T *to, *next;
    void made() {
      from = to;
      std::swap(to, next);
    }
  };

  const T* fold(const T* from, T* memory, int64_t rows) const {
    Passes passes{from, memory + cells(rows_), memory};
    const int64_t plane = lines(rows) * width_;
    if (p_.kernel[0] > 1) fold_axis(passes, 0, plane, plane);
    int64_t count = plane;
    if (p_.stride[1] > 1) {
      fold_lines(passes, rows);
      count = rows * width_;
    } else if (p_.kernel[1] > 1) {
      count -= (reach_[1] - 1) * width_;
      fold_axis(passes, 1, width_, count);
    }
    if (p_.kernel[2] > 1) fold_axis(passes, 2, 1, count - reach_[2] + 1);
    return passes.from;
  }

  // `count` elements of the last pass; those before need their neighbours' too.
  void fold_axis(Passes& passes, int axis, int64_t stride, int64_t count) const {
    const int64_t kernel = p_.kernel[axis], step = p_.dilation[axis] * stride;
    if (!overlaps_) {
      add_taps(passes.from, passes.to, kernel, step, count);
      return passes.made();
    }
    for (int64_t done = 1; done < kernel;) {
      const int64_t next = taken(done, kernel);
      step_(passes.to, passes.from, passes.from + (next - done) * step, nullptr,
            count + (kernel - next) * step);
      passes.made();
      done = next;
    }
  }
  void add_taps(const T* from, T* to, int64_t kernel, int64_t step, int64_t count) const {
    if (kernel == 1) std::copy_n(from, count, to);
    if (kernel > 1) step_(to, from, from + step, nullptr, count);
    for (int64_t k = 2; k < kernel; ++k) step_(to, to, from + k * step, nullptr, count);
  }
  // Only the lines that a window begins at, next to each other.
  void fold_lines(Passes& passes, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r)
      add_taps(passes.from + r * p_.stride[1] * width_, passes.to + r * width_, p_.kernel[1],
               p_.dilation[1] * width_, width_);
    passes.made();
  }

  Planes p_;
  TileStep<T> step_;
  bool overlaps_;
  T padding_;
  int64_t reach_[3], width_ = 0, rows_ = 1;
};

}  // namespace ort::cpu
