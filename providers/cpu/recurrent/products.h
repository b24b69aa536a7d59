// The products of a recurrent layer: of all steps at once, and of one state after the other with a
// matrix that stays.
#pragma once

#include "providers/cpu/product/gemm.h"
#include "providers/cpu/product/packed_constant.h"
#include "providers/kernel_table.h"

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

// Numbers whose rows lie `apart`.
template <class T>
struct Rows {
  T* data;
  int64_t apart;
};

// c = a b, or added to c, for many a of m rows and one b, stored [n, k] when transposed.
template <class T>
class StateProduct {
 public:
  StateProduct(int64_t m, int64_t n, int64_t k, bool transposed, bool add)
      : m_(m), n_(n), k_(k), transposed_(transposed), add_(add) {}
  int64_t packed() const { return packed_count<T>(k_, n_); }  // numbers
  void pack(const T* b, T* to) const { cpu::pack(k_, n_, matrix(b), to); }
  void run(Rows<const T> a, Rows<T> c, const T* packed) const {
    gemm({.m = m_,
          .n = n_,
          .k = k_,
          .a = stored(a.data, a.apart),
          .b = matrix(nullptr),
          .c = c.data,
          .c_row = c.apart,
          .start = add_ ? c.data : nullptr,
          .start_row = c.apart,
          .packed = packed});
  }

 private:
  Matrix<T> matrix(const T* b) const { return stored(b, transposed_ ? k_ : n_, transposed_); }
  int64_t m_, n_, k_;
  bool transposed_, add_;
};

// Rows `first` to `first` + `count` of the matrix of each direction, [D, N, K], transposed and
// packed where it is a constant; else null.
template <class T>
class Packs {
 public:
  explicit Packs(const Operand& matrices) : Packs(matrices, 0, matrices.sizes[1]) {}
  Packs(const Operand& matrices, int64_t first, int64_t count) {
    const int64_t n = matrices.sizes[1], k = matrices.sizes[2];
    for (int64_t d = 0; matrices.constant && d < matrices.sizes[0]; ++d)
      made_.push_back(packed_constant<T>(
          matrices.constant,
          {.k = k, .n = count, .first = (d * n + first) * k, .row = k, .transposed = true}));
  }
  const T* operator[](int64_t d) const {
    return made_.empty() ? nullptr : made_[static_cast<size_t>(d)]->data();
  }
  // The same; else `matrix`, packed for the product into memory of the call.
  const T* get(int64_t d, const StateProduct<T>& product, const T* matrix, T* memory) const {
    if (const T* ready = (*this)[d]) return ready;
    product.pack(matrix, memory);
    return memory;
  }

 private:
  std::vector<std::shared_ptr<const PackedMatrix<T>>> made_;
};

}  // namespace ort::cpu
