// c = start + alpha a b of matrices in memory, by blocks that fit the caches: every product of this
// provider in float32, float64 or 32 bits of integers ends here. Sequential inside a parallel loop.
// Sums are taken in one order, whatever the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort::cpu {

// Element (i, j) lies at data[i * row + j * column]; one of the two is 1.
template <class T>
struct Matrix {
  const T* data;
  int64_t row, column;
};

// A matrix whose rows lie `stride` apart, or the transpose of one.
template <class T>
Matrix<T> stored(const T* data, int64_t stride, bool transposed = false) {
  return transposed ? Matrix<T>{data, 1, stride} : Matrix<T>{data, stride, 1};
}

template <class T>
struct Gemm {
  int64_t m, n, k;
  Matrix<T> a, b;
  T* c;
  int64_t c_row;  // between rows
  T alpha = 1;
  // What is added: c itself, a bias (start_row 0), nothing (null).
  const T* start = nullptr;
  int64_t start_row = 0;
  // Where pack() has put b, whose data is then not read.
  const T* packed = nullptr;
};

void gemm(const Gemm<float>& g);
void gemm(const Gemm<double>& g);
void gemm(const Gemm<uint32_t>& g);  // int32 has the same bits

// b as the products read it, once for many of them. `to` starts at a cache line.
template <class T>
constexpr int64_t packed_count(int64_t k, int64_t n) {
  constexpr int64_t kWidest = 64 / sizeof(T);
  return (n + kWidest - 1) / kWidest * kWidest * k;
}
void pack(int64_t k, int64_t n, const Matrix<float>& b, float* to);
void pack(int64_t k, int64_t n, const Matrix<double>& b, double* to);
// b again, element (i, j) to b[i * row + j * column].
void unpack(int64_t k, int64_t n, const float* packed, float* b, int64_t row, int64_t column);
void unpack(int64_t k, int64_t n, const double* packed, double* b, int64_t row, int64_t column);

}  // namespace ort::cpu
