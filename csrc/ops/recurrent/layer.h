// What LSTM, GRU and RNN of ONNX have in common, for shapes, gradients and kernels.
#pragma once

#include "csrc/ops/ops.h"

namespace ort::recurrent {

enum class Function : uint8_t {
  affine,        // alpha x + beta
  elu,           // x, below zero alpha (e^x - 1)
  hard_sigmoid,  // alpha x + beta within 0 and 1
  leaky_relu,    // x, below zero alpha x
  relu,
  scaled_tanh,  // alpha tanh(beta x)
  sigmoid,
  softplus,
  softsign,
  tanh,
  thresholded_relu  // x, below alpha zero
};

struct Activation {
  Function function;
  double alpha = 0.0, beta = 0.0;
};

// One of the layers. T steps, B rows, D directions, H numbers of a state.
struct Kind {
  std::string_view op;
  int64_t gates;                // blocks of H rows in the weights
  int64_t states;               // h, and of an LSTM c
  int64_t saved;                // numbers of H that the gradient reads of each step
  std::vector<Function> usual;  // the activations of a direction where the attribute is absent
};

const Kind& lstm();
const Kind& gru();
const Kind& rnn();

// Attribute "activations" with their numbers, those of each direction one after the other. Names
// are read in any case; activation_alpha and activation_beta are used up in order, by those that
// have such a number (ONNX's defaults where the lists end). Throws where a name is unknown.
std::vector<Activation> activations_of(const Kind& kind, const Attrs& attrs, int64_t directions);
int64_t directions_of(const Attrs& attrs);
// Whether each activation is `usual` and no sum is clipped: output `gates` then has the gates' own
// values, else the sums that they are made of.
bool is_usual(const Kind& kind, const Attrs& attrs);
// Whether the gradient reads `gates`. An RNN's y says all where its activations are of the common
// ones.
bool reads_gates(const Kind& kind, const Attrs& attrs);

}  // namespace ort::recurrent
