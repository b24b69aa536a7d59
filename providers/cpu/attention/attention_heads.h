// Rows of one head as float32, for attention's products: where they lie, or a copy of halves in a
// thread's memory.
#pragma once

#include <algorithm>

#include "providers/cpu/convert.h"
#include "providers/cpu/product/gemm.h"
#include "providers/kernel_table.h"

namespace ort::cpu {

// An operand [B, heads, rows, width], or [B, rows, heads, width] with heads_last.
struct Heads {
  bool present;  // what is not is computed all the same, and left in the thread's memory
  DType dtype;
  int64_t heads, rows, width;
  bool heads_last;
  bool in_place() const { return present && dtype == DType::f32; }
  int64_t buffer(int64_t count) const { return in_place() ? 0 : count * width; }
};

// Where a head's rows begin.
struct HeadAt {
  int64_t batch, head, row, count;
};

class HeadRows {
 public:
  HeadRows(const Heads& h, void* data, const HeadAt& at, float* buffer)
      : dtype_(h.dtype),
        given_stride_(h.heads_last ? h.heads * h.width : h.width),
        count_(at.count),
        width_(h.width) {
    const int64_t first = h.heads_last ? ((at.batch * h.rows + at.row) * h.heads + at.head)
                                       : ((at.batch * h.heads + at.head) * h.rows + at.row);
    if (h.in_place()) {
      data_ = static_cast<float*>(data) + first * width_;
      stride_ = given_stride_;
    } else {
      data_ = buffer;
      stride_ = width_;
      halves_ = h.present ? static_cast<uint16_t*>(data) + first * width_ : nullptr;
    }
  }
  void load() const {
    for (int64_t row = 0; halves_ && row < count_; ++row)
      widen(dtype_, halves_ + row * given_stride_, data_ + row * stride_, width_);
  }
  void store() const {
    for (int64_t row = 0; halves_ && row < count_; ++row)
      narrow(data_ + row * stride_, dtype_, halves_ + row * given_stride_, width_);
  }
  void clear() const {
    for (int64_t row = 0; row < count_; ++row) std::fill_n(data_ + row * stride_, width_, 0.0f);
  }
  float* data() const { return data_; }
  float* row(int64_t i) const { return data_ + i * stride_; }
  int64_t stride() const { return stride_; }
  Matrix<float> matrix(bool transposed = false) const {
    return stored<float>(data_, stride_, transposed);
  }

 private:
  DType dtype_;
  int64_t given_stride_, count_, width_;
  float* data_;
  int64_t stride_;
  uint16_t* halves_ = nullptr;
};

}  // namespace ort::cpu
