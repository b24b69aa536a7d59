// The products of a recurrent layer by element type: of one state after the other with a matrix
// that stays, and of all steps at once.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "providers/cpu/dgemm.h"
#include "providers/cpu/packed_product.h"
#include "providers/cpu/sgemm.h"

namespace ort::cpu {

// c = op(a) op(b), or added to c: m, n, k; rows of the stored matrices follow each other. Made when
// a kernel is: scratch memory is for the threads of then.
template <class T>
struct StepsProduct;

template <>
struct StepsProduct<float> {
  size_t scratch(int64_t, int64_t, int64_t) const { return 0; }
  void run(int64_t m, int64_t n, int64_t k, const float* a, bool trans_a, const float* b,
           bool trans_b, bool add, float* c, void*) const {
    sgemm(m, n, k, 1.0f, {a, trans_a ? m : k, trans_a}, {b, trans_b ? k : n, trans_b},
          add ? 1.0f : 0.0f, c, n);
  }
};

template <>
struct StepsProduct<double> {
  size_t scratch(int64_t m, int64_t n, int64_t k) const { return dgemm_scratch(m, n, k, threads); }
  void run(int64_t m, int64_t n, int64_t k, const double* a, bool trans_a, const double* b,
           bool trans_b, bool add, double* c, void* scratch) const {
    if (!add) std::fill_n(c, m * n, 0.0);
    dgemm(m, n, k, 1.0, {a, trans_a ? 1 : k, trans_a ? m : 1},
          {b, trans_b ? 1 : n, trans_b ? k : 1}, c, threads, scratch);
  }
  int threads = std::max(1, omp_get_max_threads());
};

// As PackedProduct, for both types.
template <class T>
class StateProduct;

template <>
class StateProduct<float> : public PackedProduct {
 public:
  using PackedProduct::PackedProduct;
};

template <>
class StateProduct<double> {
 public:
  StateProduct(int64_t m, int64_t n, int64_t k, bool transposed, bool accumulate)
      : m_(m), n_(n), k_(k), transposed_(transposed), accumulate_(accumulate) {}
  size_t scratch_bytes() const { return matrix() + product_.scratch(m_, n_, k_); }
  void pack(const double* b, void* scratch) const {
    std::memcpy(scratch, b, static_cast<size_t>(n_ * k_) * sizeof(double));
  }
  void run(const double* a, double* c, void* scratch) const {
    product_.run(m_, n_, k_, a, false, static_cast<const double*>(scratch), transposed_,
                 accumulate_, c, static_cast<char*>(scratch) + matrix());
  }

 private:
  size_t matrix() const { return (static_cast<size_t>(n_ * k_) * sizeof(double) + 63) / 64 * 64; }
  int64_t m_, n_, k_;
  bool transposed_, accumulate_;
  StepsProduct<double> product_;
};

}  // namespace ort::cpu
