// The products of a recurrent layer: of all steps at once, and of one state after the other with a
// matrix that stays.
#pragma once

#include "providers/cpu/product/gemm.h"

namespace ort::cpu {

// c = op(a) op(b), or added to c; rows of the stored matrices follow each other. `packed`: b so,
// where it is.
template <class T>
void product_of_steps(int64_t m, int64_t n, int64_t k, const T* a, bool trans_a, const T* b,
                      bool trans_b, bool add, T* c, const T* packed = nullptr) {
  gemm({.m = m,
        .n = n,
        .k = k,
        .a = stored(a, trans_a ? m : k, trans_a),
        .b = stored(b, trans_b ? k : n, trans_b),
        .c = c,
        .c_row = n,
        .start = add ? c : nullptr,
        .start_row = n,
        .packed = packed});
}

// c = a b, or added to c, for many a and one b, stored [n, k] when transposed.
template <class T>
class StateProduct {
 public:
  StateProduct(int64_t m, int64_t n, int64_t k, bool transposed, bool add)
      : m_(m), n_(n), k_(k), transposed_(transposed), add_(add) {}
  int64_t packed() const { return packed_count<T>(k_, n_); }  // numbers
  void pack(const T* b, T* to) const { cpu::pack(k_, n_, matrix(b), to); }
  void run(const T* a, T* c, const T* packed) const {
    gemm({.m = m_,
          .n = n_,
          .k = k_,
          .a = stored(a, k_),
          .b = matrix(nullptr),
          .c = c,
          .c_row = n_,
          .start = add_ ? c : nullptr,
          .start_row = n_,
          .packed = packed});
  }

 private:
  Matrix<T> matrix(const T* b) const { return stored(b, transposed_ ? k_ : n_, transposed_); }
  int64_t m_, n_, k_;
  bool transposed_, add_;
};

}  // namespace ort::cpu
