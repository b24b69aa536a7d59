// Matrix products as problems, which every kernel of MatMul, Gemm, ort::MatMul and ort::Linear
// starts from, and those of their kernels that have files of their own.
#pragma once

#include <algorithm>
#include <optional>

#include "csrc/core/parallel.h"
#include "providers/cpu/epilogue.h"
#include "providers/kernel_table.h"

namespace ort::cpu {

// y[batch, M, N] = activation(alpha * a b + bias), a and b possibly stored transposed.
struct Product {
  Sizes batch_a, batch_b, batch;  // without the last two axes
  int64_t m = 1, n = 1, k = 1;
  bool trans_a = false, trans_b = false;
  double alpha = 1.0;
  Activation activation;
  std::optional<size_t> bias;  // operand index
  Sizes bias_sizes;
};

// Of operands 0 and 1.
Product product_of(const Request& r, bool trans_a, bool trans_b);
// One b for every row of a is one tall product; equal batches are one axis.
void fold_batch(Product& p);
bool is_row_bias(const Product& p);
// The bias as it lies over the output, whose batch may have been folded into the rows.
std::optional<Sizes> bias_over(const Product& p);
std::string product_name(const Request& r, const Product& p);

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

// Where the matrices of each product of a batch begin, counted in matrices.
struct MatrixAt {
  int64_t a, b;
};
std::vector<MatrixAt> matrices_of(const Product& p);

// By oneDNN's primitive, in the dtype of the operands; null where it has no kernel of its own for
// that on this machine.
std::unique_ptr<Kernel> make_primitive_product(const Request& r, const Product& p);
// By blocks in float32, float64 or 32 bits of integers.
std::unique_ptr<Kernel> make_blocked_product(const Request& r, const Product& p);

}  // namespace ort::cpu
