// Determinants by elimination, and cofactors as those of the minors.
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

double determinant(std::vector<double> a, size_t n) {
  double det = 1;
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i)
      if (!(std::abs(a[i * n + k]) <= std::abs(a[pivot * n + k]))) pivot = i;
    if (pivot != k) {
      for (size_t j = 0; j < n; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
      det = -det;
    }
    det *= a[k * n + k];
    if (a[k * n + k] == 0) return 0;
    for (size_t i = k + 1; i < n; ++i) {
      const double by = a[i * n + k] / a[k * n + k];
      for (size_t j = k; j < n; ++j) a[i * n + j] -= by * a[k * n + j];
    }
  }
  return det;
}

size_t edge_of(const KernelCall& c) {
  const Sizes& x = c.sizes();
  c.require(x.size() >= 2 && x[x.size() - 2] == x.back(), "X has shape {}, expected [.., M, M]", x);
  return static_cast<size_t>(x.back());
}

// f(matrix) of each.
template <class F>
void each_matrix(const KernelCall& c, size_t n, F f) {
  const In<double> x = c.in<double>(0);
  const Sizes& sizes = c.sizes();
  const int64_t count = element_count(Sizes(sizes.begin(), sizes.end() - 2));
  std::vector<double> matrix(n * n);
  for (int64_t m = 0; m < count; ++m) {
    for (size_t i = 0; i < n * n; ++i)
      matrix[i] = x[m * static_cast<int64_t>(n * n) + static_cast<int64_t>(i)];
    f(matrix);
  }
}

void det(const KernelCall& c) {
  const size_t n = edge_of(c);
  std::vector<double> y;
  each_matrix(c, n, [&](const std::vector<double>& a) { y.push_back(determinant(a, n)); });
  c.write(0, y);
}

void cofactors(const KernelCall& c) {
  const size_t n = edge_of(c);
  c.require(n <= 64, "matrices of {} rows are too large for the reference provider", n);
  std::vector<double> y;
  each_matrix(c, n, [&](const std::vector<double>& a) {
    for (size_t row = 0; row < n; ++row)
      for (size_t column = 0; column < n; ++column) {
        std::vector<double> minor;
        for (size_t i = 0; i < n * n; ++i)
          if (i / n != row && i % n != column) minor.push_back(a[i]);
        const double sign = (row + column) % 2 == 0 ? 1 : -1;
        y.push_back(sign * determinant(std::move(minor), n - 1));
      }
  });
  c.write(0, y);
}

}  // namespace

static void register_det(KernelTable& table) {
  add(table, "Det", kNumbers, det);
  add(table, "ort::Cofactors", kNumbers, cofactors);
}

const Family<KernelTable> kDetKernels("reference", "det", register_det);

}  // namespace ort::reference
