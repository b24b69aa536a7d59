// What products start from, and those of their kernels that have files of their own.
#pragma once

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/epilogue.h"
#include "providers/product.h"

namespace ort::cpu {

// What a product is added to: zeros, or the bias over every row.
class Start {
 public:
  Start(Sizes out, const Product& p)
      : out_(std::move(out)),
        strides_(p.bias ? broadcast_strides(p.bias_sizes, out_) : Sizes(out_.size(), 0)) {}

  template <class T>
  void write(T* y, const T* bias) const {
    const int64_t row = out_.empty() ? 1 : std::max<int64_t>(out_.back(), 1);
    const int64_t step = out_.empty() ? 0 : strides_.back(), count = element_count(out_);
    parallel_for(count / row, count, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end; ++at) {
        int64_t rest = at, from = 0;
        for (size_t axis = out_.size(); axis-- > 1; rest /= out_[axis - 1])
          from += rest % out_[axis - 1] * strides_[axis - 1];
        for (int64_t j = 0; j < row; ++j) y[at * row + j] = bias ? bias[from + j * step] : T{};
      }
    });
  }

 private:
  Sizes out_, strides_;
};

// By oneDNN's primitive, in the dtype of the operands; null where it has no kernel of its own for
// that on this machine.
std::unique_ptr<Kernel> make_primitive_product(const Request& r, const Product& p);
// By blocks in float32, float64 or 32 bits of integers.
std::unique_ptr<Kernel> make_blocked_product(const Request& r, const Product& p);

}  // namespace ort::cpu
