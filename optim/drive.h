// What the rules of all optimizers share: parameters and their states in raw memory, in pieces of
// one size over the threads. group.h calls it with torch's tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/core/dtype.h"

namespace ort::optim {

constexpr int kStates = 3;

// A half's step is computed in float32. With a master its states are float32 too, and it is the
// master rounded; without one they are halves.
struct Parameter {
  DType dtype;
  void* param;
  const void* grad;
  float* master;          // null: none
  void* states[kStates];  // null: the rule has none there
  int64_t count;
  const void* factors;  // the rule's own struct
};

// Steps the elements [begin, end): a rule's kernel.
using Range = void (*)(const Parameter& parameter, int64_t begin, int64_t end);

// Sums over elements, of the parameter squared and of the direction that it would go.
struct Squares {
  double param = 0, direction = 0;
};

// Adds those of [begin, end); writes nothing else.
using SquaresRange = void (*)(const Parameter& parameter, int64_t begin, int64_t end,
                              Squares& sums);

// One launch of the threads over all of them.
void step(std::span<const Parameter> parameters, Range range);
// The same sums whatever the number of threads.
std::vector<Squares> squares(std::span<const Parameter> parameters, SquaresRange range);

}  // namespace ort::optim
