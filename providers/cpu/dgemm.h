// c += alpha op(a) op(b) in float64, row-major, by blocks that fit the caches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort::cpu {

struct DoubleMatrix {
  const double* data;
  int64_t row, column;  // strides
};

// Of scratch memory for a product of these sizes by at most `threads` threads.
size_t dgemm_scratch(int64_t m, int64_t n, int64_t k, int threads);
// c's rows are n apart. Sequential inside a parallel loop.
void dgemm(int64_t m, int64_t n, int64_t k, double alpha, DoubleMatrix a, DoubleMatrix b, double* c,
           int threads, void* scratch);

}  // namespace ort::cpu
