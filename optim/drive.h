// What the rules of all optimizers share: parameters and their states in raw memory, in pieces of
// one size over the threads. group.h calls it with torch's tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/core/dtype.h"

namespace ort::optim {

constexpr int kStates = 3;
constexpr int64_t kWorkAnElement = 16;  // of parallel_for's: a division and a root among them

// A half's step is computed in float32. With a master its states are float32 too, and it is the
// master rounded; without one they are halves.
struct Parameter {
  DType dtype;
  void* param;
  void* grad;
  float* master;          // null: none
  void* states[kStates];  // null: the rule has none there
  void* mean;             // of the parameter over its steps, as the states; null: none
  int64_t count;
  int64_t rows, columns;  // of its matrices, over the last two axes; 0: a vector
  bool by_columns;        // its one matrix lies by columns
  const void* factors;    // the rule's own struct
  double grad_factor;     // a rule has the gradient times this: sign, unscaling and clipping
  double mean_rest;       // of the new parameter in the mean: 1 - decay, 1 at the first step
  bool zero_grad;         // the gradient is zero after the step
};

// A gradient alone, before a step.
struct Gradient {
  DType dtype;
  const void* data;
  int64_t count;
};

// Steps the elements [begin, end): a rule's kernel.
using Range = void (*)(const Parameter& parameter, int64_t begin, int64_t end);

// Sums over elements, of the parameter squared and of the direction that it would go.
struct Squares {
  double param = 0, direction = 0;
};

// Adds those of [begin, end); may write its new states, from which the step goes on then.
using SquaresRange = void (*)(const Parameter& parameter, int64_t begin, int64_t end,
                              Squares& sums);

// One launch of the threads over all of them.
void step(std::span<const Parameter> parameters, Range range);
// Calls f(parameter) for each: on a thread where it is small, in turn where it has them all.
void each(std::span<const Parameter> parameters, const std::function<void(const Parameter&)>& f);
// The same sums whatever the number of threads.
std::vector<Squares> squares(std::span<const Parameter> parameters, SquaresRange range);
// The sum of all squares, in double, which those of float32 and halves cannot overflow; likewise.
double squares(std::span<const Gradient> gradients);

}  // namespace ort::optim
