// Matrix products as problems, which every provider's kernels of MatMul, Gemm, ort::MatMul and
// ort::Linear start from.
#pragma once

#include <optional>

#include "csrc/graph/schema.h"
#include "providers/kernel_table.h"

namespace ort {

// What a product or a convolution does to each element of its result.
struct Activation {
  Epilogue kind = Epilogue::none;
  double low = 0.0, high = 0.0;  // the bounds of a clip; a slope is `low`
  explicit operator bool() const { return kind != Epilogue::none; }
};

Activation activation_of(const Attrs& attrs);
// "+relu" and the like, for the name of a kernel; empty for none.
std::string suffix_of(const Activation& activation);

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

// Where the matrices of each product of a batch begin, counted in matrices.
struct MatrixAt {
  int64_t a, b;
};
std::vector<MatrixAt> matrices_of(const Product& p);

}  // namespace ort
