// Sizes of products: batches that broadcast, folded where they can be.
#include "providers/product.h"

#include <algorithm>

namespace ort {

Product product_of(const Request& r, bool trans_a, bool trans_b) {
  Product p;
  p.trans_a = trans_a;
  p.trans_b = trans_b;
  Sizes a = r.sizes(0), b = r.sizes(1);
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  p.m = a[a.size() - (trans_a ? 1 : 2)];
  p.k = a[a.size() - (trans_a ? 2 : 1)];
  p.n = b[b.size() - (trans_b ? 2 : 1)];
  const int64_t kb = b[b.size() - (trans_b ? 1 : 2)];
  if (p.k != kb) r.refuse("shapes {} and {}: inner sizes {} and {} differ", a, b, p.k, kb);
  p.batch_a.assign(a.begin(), a.end() - 2);
  p.batch_b.assign(b.begin(), b.end() - 2);
  const size_t rank = std::max(p.batch_a.size(), p.batch_b.size());
  p.batch_a.insert(p.batch_a.begin(), rank - p.batch_a.size(), 1);
  p.batch_b.insert(p.batch_b.begin(), rank - p.batch_b.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = p.batch_a[i], y = p.batch_b[i];
    if (x != y && x != 1 && y != 1) r.refuse("batch sizes of {} and {} do not broadcast", a, b);
    p.batch.push_back(x == 1 ? y : x);
  }
  return p;
}

void fold_batch(Product& p) {
  const int64_t count = element_count(p.batch);
  if (!p.trans_a && element_count(p.batch_b) == 1 && element_count(p.batch_a) == count) {
    p.m *= count;
    p.batch.clear();
  } else if (p.batch_a == p.batch && p.batch_b == p.batch) {
    p.batch = {count};
  } else {
    return;
  }
  p.batch_a = p.batch_b = p.batch;
}

bool is_row_bias(const Product& p) {
  return !p.bias_sizes.empty() && p.bias_sizes.back() == p.n && element_count(p.bias_sizes) == p.n;
}

std::string product_name(const Request& r, const Product& p) {
  std::string name = r.node().op;
  if (p.bias) name += "+bias";
  return name + suffix_of(p.activation);
}

std::optional<Sizes> bias_over(const Product& p) {
  Sizes sizes = is_row_bias(p) ? Sizes{p.n} : p.bias_sizes;
  const size_t rank = p.batch.size() + 2;
  if (sizes.size() > rank) return std::nullopt;
  sizes.insert(sizes.begin(), rank - sizes.size(), 1);
  Sizes out = p.batch;
  out.push_back(p.m);
  out.push_back(p.n);
  for (size_t i = 0; i < rank; ++i)
    if (sizes[i] != 1 && sizes[i] != out[i]) return std::nullopt;
  return sizes;
}

std::vector<MatrixAt> matrices_of(const Product& p) {
  const Sizes a_strides = broadcast_strides(p.batch_a, p.batch);
  const Sizes b_strides = broadcast_strides(p.batch_b, p.batch);
  std::vector<MatrixAt> matrices;
  for (int64_t at = 0; at < element_count(p.batch); ++at) {
    int64_t rest = at;
    MatrixAt matrix{0, 0};
    for (size_t axis = p.batch.size(); axis-- > 0; rest /= p.batch[axis]) {
      matrix.a += rest % p.batch[axis] * a_strides[axis];
      matrix.b += rest % p.batch[axis] * b_strides[axis];
    }
    matrices.push_back(matrix);
  }
  return matrices;
}

Activation activation_of(const Attrs& attrs) {
  const std::vector<double> numbers = epilogue_numbers_of(attrs);
  Activation activation{epilogue_of(attrs)};
  if (!numbers.empty()) activation.low = numbers[0];
  if (numbers.size() > 1) activation.high = numbers[1];
  return activation;
}

std::string suffix_of(const Activation& activation) {
  return activation ? "+" + std::string(name_of(activation.kind)) : "";
}

}  // namespace ort
