// oneDNN's sgemm, row-major: c = alpha op(a) op(b) + beta c, beta 0 or 1. Sequential inside a
// parallel loop.
#pragma once

#include <cstdint>

namespace ort::cpu {

struct Matrix {
  const float* data;
  int64_t stride;  // between stored rows
  bool transposed = false;
};

void sgemm(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
           int64_t c_stride);

}  // namespace ort::cpu
