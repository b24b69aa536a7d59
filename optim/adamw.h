// The fused AdamW step over raw memory: one pass over parameter, gradient and moments. module.cpp
// calls it with the pointers of torch tensors.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/core/dtype.h"

namespace ort::optim {

// What one parameter's step multiplies by; formed in double, used in the parameter's own type.
struct AdamWFactors {
  double decay;  // 1 - lr * weight_decay
  double beta1, beta2;
  double step_size;    // lr / (1 - beta1^step)
  double second_root;  // sqrt(1 - beta2^step)
  double eps;
  bool maximize;
};

template <class T>
struct AdamWTensors {
  T* param;
  const T* grad;
  T* exp_avg;
  T* exp_avg_sq;
  T* max_exp_avg_sq;  // null: not amsgrad
  int64_t count;
  AdamWFactors factors;
};

// A parameter in `half`. With a master the moments are float32, and the parameter is the master
// rounded; without one they are halves too. Either way the step is computed in float32.
struct AdamWHalves {
  DType half;
  uint16_t* param;
  const uint16_t* grad;
  float* master;
  void *exp_avg, *exp_avg_sq, *max_exp_avg_sq;
  int64_t count;
  AdamWFactors factors;
};

// Steps all of them, in pieces of one size over the threads, however unequal the tensors are.
void adamw(std::span<const AdamWTensors<float>> tensors);
void adamw(std::span<const AdamWTensors<double>> tensors);
void adamw(std::span<const AdamWHalves> tensors);

// A piece of one tensor.
void adamw_range(const AdamWTensors<float>& tensors, int64_t begin, int64_t end);

}  // namespace ort::optim
