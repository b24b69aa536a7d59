// Weights that no run changes, as products read them.
#pragma once

#include <cstdint>
#include <memory>

#include "providers/cpu/product/gemm.h"

namespace ort::cpu {

// The matrix b, of k rows and n columns, packed once for all kernels that hold it. Its data stays
// while one of them does.
template <class T>
std::shared_ptr<const T> packed_constant(int64_t k, int64_t n, const Matrix<T>& b);

}  // namespace ort::cpu
