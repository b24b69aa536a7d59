// The rules of the optimizers: what one parameter's step multiplies by, and the kernels of it. The
// gradient of a rule has its sign, which maximize turns, and its scale already.
#pragma once

#include "optim/drive.h"

namespace ort::optim {

// Formed in double, used in the type that a step is computed in.
struct AdamFactors {
  double decay;  // of the parameter: lr * weight_decay, where it is decoupled
  double l2;     // of the parameter, in the gradient
  double beta1, beta2;
  double step_size;    // lr / (1 - beta1^step)
  double second_root;  // sqrt(1 - beta2^step)
  double eps;
};

// States: exp_avg, exp_avg_sq and, for amsgrad, max_exp_avg_sq.
Range adam();

struct SgdFactors {
  double l2, momentum, lr;
  double rest;  // of the gradient in the momentum: 1 - dampening, 1 at the first
  bool nesterov;
};

// States: momentum_buffer, where there is momentum.
Range sgd();

struct LionFactors {
  double decay;  // of the parameter: lr * weight_decay
  double beta1, beta2, lr;
};

// States: exp_avg.
Range lion();

struct LambFactors {
  double weight_decay, beta1, beta2;
  double first;        // 1 / (1 - beta1^step)
  double second_root;  // sqrt(1 - beta2^step)
  double eps;
  double rate;  // lr times the trust ratio, which the squares are taken for
};

// States: exp_avg and exp_avg_sq.
Range lamb();
SquaresRange lamb_squares();

struct AdafactorFactors {
  double decay;  // of the parameter: lr * weight_decay
  double rest;   // of the new squares in their means: step^beta2_decay
  double eps;    // epsilon1
  double rate;   // min(lr, 1 / sqrt(step)), then times what the squares are taken for
};
struct AdafactorRate {
  double eps2, clip;
};

// State: variance.
Range adafactor();
SquaresRange adafactor_squares();
// The whole step of a parameter of two axes or more. States: row_var and col_var.
void adafactor_matrices(const Parameter& parameter, const AdafactorRate& rate);

struct MuonFactors {
  double momentum;
  bool nesterov;
  double decay;  // of the parameter: lr * weight_decay
  double rate;   // of the orthogonal direction
};

// States: momentum_buffer, and the direction, which it writes.
Range muon_momentum();
// The step along the direction, which lies where the gradient does.
Range muon();

// The sum of the squares of the elements [begin, end).
using GradientRange = double (*)(const Gradient& gradient, int64_t begin, int64_t end);
GradientRange gradient_squares();

}  // namespace ort::optim
