// Probabilities of classes from those of pairs.
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// The p that minimises the sum over i and j of (r_ji p_i - r_ij p_j)^2, which is p^T Q p: its
// elements in turns, until Q p is the same for all of them.
class Coupling {
 public:
  explicit Coupling(size_t classes) : n_(classes), r_(n_ * n_), q_(n_ * n_), p_(n_), qp_(n_) {}

  template <class X>
  const std::vector<double>& solve(const X& x, int64_t from) {
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = i + 1; j < n_; ++j) {
        r_[i * n_ + j] = x[from++];
        r_[j * n_ + i] = 1 - r_[i * n_ + j];
      }
    start();
    const size_t most = std::max<size_t>(100, n_);
    const double enough = 0.005 / static_cast<double>(n_);
    for (size_t round = 0; round < most; ++round) {
      const double value = multiply();
      double error = 0;
      for (const double each : qp_) error = std::max(error, std::abs(each - value));
      if (error < enough) break;
      improve(value);
    }
    return p_;
  }

 private:
  void start() {
    std::fill(p_.begin(), p_.end(), 1.0 / static_cast<double>(n_));
    for (size_t i = 0; i < n_; ++i) {
      double& diagonal = q_[i * n_ + i] = 0;
      for (size_t j = 0; j < n_; ++j) {
        if (j == i) continue;
        diagonal += r_[j * n_ + i] * r_[j * n_ + i];
        q_[i * n_ + j] = -r_[j * n_ + i] * r_[i * n_ + j];
      }
    }
  }

  // Q p, and p^T Q p.
  double multiply() {
    double value = 0;
    for (size_t i = 0; i < n_; ++i) {
      qp_[i] = 0;
      for (size_t j = 0; j < n_; ++j) qp_[i] += q_[i * n_ + j] * p_[j];
      value += p_[i] * qp_[i];
    }
    return value;
  }

  void improve(double value) {
    for (size_t i = 0; i < n_; ++i) {
      const double diagonal = q_[i * n_ + i], step = (value - qp_[i]) / diagonal;
      const double whole = 1 + step;
      value = (value + step * (step * diagonal + 2 * qp_[i])) / (whole * whole);
      p_[i] += step;
      for (size_t j = 0; j < n_; ++j) {
        qp_[j] = (qp_[j] + step * q_[i * n_ + j]) / whole;
        p_[j] /= whole;
      }
    }
  }

  size_t n_;
  std::vector<double> r_, q_, p_, qp_;
};

void pairwise(const KernelCall& c) {
  const In<double> x = c.in<double>(0);
  Coupling coupling(static_cast<size_t>(c.attrs().i("classes")));
  std::vector<double> y;
  for (int64_t row = 0; row < c.sizes()[0]; ++row) {
    const auto& p = coupling.solve(x, row * c.sizes()[1]);
    y.insert(y.end(), p.begin(), p.end());
  }
  c.write(0, y);
}

}  // namespace

static void register_reference_svm(KernelTable& table) {
  add(table, "ort::PairwiseProbabilities", kFloating, pairwise);
}

const Family<KernelTable> kSvmKernels("reference", "ml/svm", register_reference_svm);

}  // namespace ort::reference
