// Products in float64: the bias is written first and added to. Many small products run side by
// side, each with scratch memory of its own.
#include <omp.h>

#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/dgemm.h"
#include "providers/cpu/product.h"

namespace ort::cpu {
namespace {

// Below this many multiplications a product of a batch is one thread's.
constexpr int64_t kSmall = 1 << 20;

class DoubleProduct final : public Kernel {
 public:
  DoubleProduct(const Request& r, const Product& p)
      : p_(p),
        name_(product_name(r, p)),
        matrices_(matrices_of(p)),
        start_(r.out().sizes, p),
        threads_(std::max(1, omp_get_max_threads())),
        side_by_side_(matrices_.size() > 1 && p.m * p.n * p.k < kSmall),
        scratch_((dgemm_scratch(p.m, p.n, p.k, side_by_side_ ? 1 : threads_) + 63) / 64 * 64) {}

  void run(const Args& args) const override {
    auto* y = static_cast<double*>(args.out[0]);
    start_.write(y, p_.bias ? static_cast<const double*>(args.in[*p_.bias]) : nullptr);
    const auto count = static_cast<int64_t>(matrices_.size());
    if (!side_by_side_) {
      for (int64_t at = 0; at < count; ++at) multiply(args, at, y, threads_, args.scratch);
      return;
    }
    parallel_for(
        count, count * p_.m * p_.n * p_.k,
        [&](int64_t begin, int64_t end, int thread) {
          void* own = static_cast<char*>(args.scratch) + static_cast<size_t>(thread) * scratch_;
          for (int64_t at = begin; at < end; ++at) multiply(args, at, y, 1, own);
        },
        threads_);
  }

  size_t scratch_bytes() const override {
    return scratch_ * static_cast<size_t>(side_by_side_ ? threads_ : 1);
  }
  std::string name() const override { return name_; }

 private:
  void multiply(const Args& args, int64_t at, double* y, int threads, void* scratch) const {
    const MatrixAt& matrix = matrices_[static_cast<size_t>(at)];
    const double* a = static_cast<const double*>(args.in[0]) + matrix.a * p_.m * p_.k;
    const double* b = static_cast<const double*>(args.in[1]) + matrix.b * p_.k * p_.n;
    dgemm(p_.m, p_.n, p_.k, p_.alpha, {a, p_.trans_a ? 1 : p_.k, p_.trans_a ? p_.m : 1},
          {b, p_.trans_b ? 1 : p_.n, p_.trans_b ? p_.k : 1}, y + at * p_.m * p_.n, threads,
          scratch);
  }

  Product p_;
  std::string name_;
  std::vector<MatrixAt> matrices_;
  Start start_;
  int threads_;
  bool side_by_side_;
  size_t scratch_;
};

}  // namespace

std::unique_ptr<Kernel> make_double_product(const Request& r, const Product& given) {
  Product p = given;
  fold_batch(p);
  return std::make_unique<DoubleProduct>(r, p);
}

}  // namespace ort::cpu
