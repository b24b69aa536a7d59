// Determinants and cofactors by elimination, in double: a matrix a unit of work.
#include <cmath>
#include <numeric>
#include <vector>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

// P A Q = L U, with the largest element left as each pivot: of a matrix of rank M - 1 the last
// pivot alone is zero. NaN counts as larger than every number, so that it is not lost.
class Factors {
 public:
  template <class T>
  Factors(const T* matrix, size_t n) : n_(n), a_(matrix, matrix + n * n), rows_(n), columns_(n) {
    std::iota(rows_.begin(), rows_.end(), size_t{0});
    std::iota(columns_.begin(), columns_.end(), size_t{0});
    for (size_t k = 0; k < n; ++k)
      if (!step(k)) break;
  }

  double determinant() const { return sign_ * product(n_); }

  // The derivative of the determinant by each element.
  template <class T>
  void cofactors(T* to) const {
    const double scale = n_ == 0 ? 0 : sign_ * product(n_ - 1);
    std::vector<double> row(n_);
    for (size_t j = 0; j < n_; ++j) {
      if (scale == 0)
        std::fill(row.begin(), row.end(), 0.0);
      else
        adjugate_row(j, row);
      for (size_t i = 0; i < n_; ++i)
        to[rows_[i] * n_ + columns_[j]] = static_cast<T>(scale * row[i]);
    }
  }

 private:
  double at(size_t i, size_t j) const { return a_[i * n_ + j]; }
  double product(size_t count) const {
    double all = 1;
    for (size_t k = 0; k < count; ++k) all *= at(k, k);
    return all;
  }

  // False where nothing but zeros is left.
  bool step(size_t k) {
    size_t row = k, column = k;
    for (size_t i = k; i < n_; ++i)
      for (size_t j = k; j < n_; ++j)
        if (!(std::abs(at(i, j)) <= std::abs(at(row, column)))) row = i, column = j;
    if (row != k) {
      std::swap_ranges(a_.begin() + static_cast<int64_t>(k * n_),
                       a_.begin() + static_cast<int64_t>((k + 1) * n_),
                       a_.begin() + static_cast<int64_t>(row * n_));
      std::swap(rows_[k], rows_[row]);
      sign_ = -sign_;
    }
    if (column != k) {
      for (size_t i = 0; i < n_; ++i) std::swap(a_[i * n_ + k], a_[i * n_ + column]);
      std::swap(columns_[k], columns_[column]);
      sign_ = -sign_;
    }
    const double pivot = at(k, k);
    if (pivot == 0) return false;
    for (size_t i = k + 1; i < n_; ++i) {
      const double by = a_[i * n_ + k] /= pivot;
      const double* from = a_.data() + k * n_;
      double* to = a_.data() + i * n_;
      for (size_t j = k + 1; j < n_; ++j) to[j] -= by * from[j];
    }
    return true;
  }

  // Row j of adj(L U) without the product of the first M - 1 pivots: row j of the upper factor's
  // [d inverse(U1), -inverse(U1) u; 0, 1], where d is the last pivot, u the column above it and U1
  // the rest, then times inverse(L).
  void adjugate_row(size_t j, std::vector<double>& row) const {
    const size_t last = n_ - 1;
    std::fill(row.begin(), row.end(), 0.0);
    if (j == last) {
      row[last] = 1;
    } else {  // e_j^T inverse(U1), by columns from the left
      for (size_t k = j; k < last; ++k) {
        double value = k == j ? 1 : 0;
        for (size_t i = j; i < k; ++i) value -= row[i] * at(i, k);
        row[k] = value / at(k, k);
      }
      double end = 0;
      for (size_t k = j; k < last; ++k) end -= row[k] * at(k, last);
      for (size_t k = j; k < last; ++k) row[k] *= at(last, last);
      row[last] = end;
    }
    for (size_t k = n_; k-- > 0;)
      for (size_t i = 0; i < k; ++i) row[i] -= row[k] * at(k, i);
  }

  size_t n_;
  std::vector<double> a_;
  std::vector<size_t> rows_, columns_;
  double sign_ = 1;
};

// f(factors, number of the matrix) of each.
template <class T, class F>
std::unique_ptr<Kernel> each_matrix(std::string name, const Request& r, F f) {
  const Sizes& x = r.sizes(0);
  if (x.size() < 2 || x[x.size() - 2] != x.back())
    r.refuse("X has shape {}, expected [.., M, M]", x);
  const int64_t n = x.back(), count = element_count(Sizes(x.begin(), x.end() - 2));
  return make_kernel(std::move(name), [=](const Args& args) {
    parallel_for(count, count * n * n * n, [&](int64_t begin, int64_t end, int) {
      for (int64_t m = begin; m < end; ++m)
        f(args, Factors(input<T>(args, 0) + m * n * n, static_cast<size_t>(n)), m, n * n);
    });
  });
}

template <class T>
std::unique_ptr<Kernel> det(const Request& r) {
  return each_matrix<T>("Det", r, [](const Args& args, const Factors& f, int64_t m, int64_t) {
    output<T>(args)[m] = static_cast<T>(f.determinant());
  });
}

template <class T>
std::unique_ptr<Kernel> cofactors(const Request& r) {
  return each_matrix<T>("Cofactors", r,
                        [](const Args& args, const Factors& f, int64_t m, int64_t size) {
                          f.cofactors(output<T>(args) + m * size);
                        });
}

}  // namespace

static void register_det(KernelTable& table) {
  table.op("Det").add("elimination", kF32, det<float>).add("elimination", kF64, det<double>);
  table.op("ort::Cofactors")
      .add("elimination", kF32, cofactors<float>)
      .add("elimination", kF64, cofactors<double>);
}

const Family<KernelTable> kDetKernels("cpu", "det", register_det);

}  // namespace ort::cpu
