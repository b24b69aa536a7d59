// Weights that no run changes, as products read them.
#pragma once

#include <cstdint>
#include <memory>

#include "providers/constant.h"
#include "providers/cpu/product/gemm.h"

namespace ort::cpu {

// Which matrix of k rows and n columns it is of the constant that has it: where it starts, and how
// it lies.
struct MatrixOf {
  int64_t k, n;
  int64_t first = 0;  // elements
  int64_t row = 0;    // between rows, or between columns when transposed
  bool transposed = false;
  friend bool operator==(const MatrixOf&, const MatrixOf&) = default;
};

template <class T>
class PackedMatrix final : public Pack {
 public:
  PackedMatrix(const Constant& constant, const MatrixOf& matrix);
  const T* data() const { return memory_.as<T>(); }
  void unpack(void* to) const override;  // the matrix alone, as it lay in the constant

 private:
  MatrixOf matrix_;
  Tensor memory_;
};

// Packed once for all kernels that hold it. The constant stays while one of them does.
template <class T>
std::shared_ptr<const PackedMatrix<T>> packed_constant(const Constant& constant,
                                                       const MatrixOf& matrix);

}  // namespace ort::cpu
