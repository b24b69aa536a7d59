// What the kernels of LSTM share: a row's gates, and which of its forms they take.
#pragma once

#include "providers/cpu/recurrent/layer.h"

namespace ort::cpu {

template <class T>
struct LstmSteps {
  TileStep<T> sigmoid{TileOp::sigmoid, 0}, tanh{TileOp::tanh, 0};
};

// gates: [i o f c] sums become their activations; the new cell and hidden state are written.
template <class T>
void advance(const LstmSteps<T>& steps, int64_t H, T* gates, const T* cell, T* new_cell,
             T* hidden) {
  steps.sigmoid(gates, gates, nullptr, nullptr, 3 * H);
  steps.tanh(gates + 3 * H, gates + 3 * H, nullptr, nullptr, H);
  const T *i = gates, *f = gates + 2 * H, *g = gates + 3 * H;
  for (int64_t k = 0; k < H; ++k) new_cell[k] = f[k] * cell[k] + i[k] * g[k];
  steps.tanh(hidden, new_cell, nullptr, nullptr, H);
  for (int64_t k = 0; k < H; ++k) hidden[k] *= gates[H + k];
}

// peepholes: which input these are.
inline When usual_lstm(size_t peepholes) {
  return [peepholes](const Node& node) {
    if (node.has_input(peepholes)) return Verdict::no("peepholes");
    if (node.attrs.i("input_forget", 0) != 0) return Verdict::no("input_forget");
    return require(recurrent::is_usual(recurrent::lstm(), node.attrs),
                   "a bound, or activations other than Sigmoid, Tanh, Tanh");
  };
}

}  // namespace ort::cpu
