// What the recurrent layers share: where a step's numbers lie, and activations with their slopes.
#pragma once

#include "csrc/ops/recurrent/layer.h"
#include "providers/reference/reference.h"

namespace ort::reference {

using Values = std::vector<double>;

class Layer {
 public:
  // x, w, r and lengths: which inputs these are.
  Layer(const KernelCall& c, const recurrent::Kind& kind, size_t x, size_t lengths);
  // The same of a layer without w.
  Layer(const KernelCall& c, const recurrent::Kind& kind, size_t x, size_t r, size_t lengths);

  int64_t steps, batch, inputs, directions, hidden, gates;

  // Rows of x [T, B, *], of y [T, D, B, *] and of a state [D, B, *], in either layout.
  int64_t x_row(int64_t t, int64_t b) const { return batch_first_ ? b * steps + t : t * batch + b; }
  int64_t y_row(int64_t t, int64_t d, int64_t b) const {
    return batch_first_ ? (b * steps + t) * directions + d : (t * directions + d) * batch + b;
  }
  int64_t state_row(int64_t d, int64_t b) const {
    return batch_first_ ? b * directions + d : d * batch + b;
  }
  int64_t length(int64_t b) const { return lengths_[static_cast<size_t>(b)]; }
  // The step that is n-th of a sequence in the direction's order.
  int64_t step(int64_t d, int64_t b, int64_t n) const {
    return reverse_ || d == 1 ? length(b) - 1 - n : n;
  }
  size_t states() const { return static_cast<size_t>(directions * batch * hidden); }
  size_t all(int64_t numbers) const { return states() * static_cast<size_t>(steps * numbers); }
  // Zeros where the input is absent.
  Values state_of(const KernelCall& c, size_t input) const;
  Values numbers_of(const KernelCall& c, size_t input, Sizes sizes) const;
  // Zeros in what a sequence of no steps has in each of the states.
  void forget_empty(std::initializer_list<Values*> states, int64_t d, int64_t b) const;

 private:
  bool batch_first_, reverse_;
  std::vector<int64_t> lengths_;
};

// All steps of all sequences, by step(t, d, b). A sequence without steps ends in zeros, as in
// onnxruntime: ONNX does not say.
template <class F>
void forwards(const Layer& l, std::initializer_list<Values*> states, F step) {
  for (int64_t d = 0; d < l.directions; ++d)
    for (int64_t b = 0; b < l.batch; ++b) {
      for (int64_t n = 0; n < l.length(b); ++n) step(l.step(d, b, n), d, b);
      l.forget_empty(states, d, b);
    }
}

// The same from the last step back, by step(t, t_before, d, b): t_before is the step that came
// before, negative where that is the initial state.
template <class F>
void backwards(const Layer& l, std::initializer_list<Values*> states, F step) {
  for (int64_t d = 0; d < l.directions; ++d)
    for (int64_t b = 0; b < l.batch; ++b) {
      for (int64_t n = l.length(b); n-- > 0;)
        step(l.step(d, b, n), n == 0 ? -1 : l.step(d, b, n - 1), d, b);
      l.forget_empty(states, d, b);
    }
}

// One row of the gates' sums, w x + r h and both biases; and its parts.
struct Weights {
  const Layer& l;
  Values w, r, b;
  double sum(int64_t d, int64_t row, const double* x, const double* h) const {
    return input_bias(d, row) + recurrent_bias(d, row) + input(d, row, x) + recurrent(d, row, h);
  }
  double input(int64_t d, int64_t row, const double* x) const;
  double recurrent(int64_t d, int64_t row, const double* h) const;
  double input_bias(int64_t d, int64_t row) const;
  double recurrent_bias(int64_t d, int64_t row) const;
};

// The same of the way back: what a slope of one sum adds.
struct WeightGradients {
  const Layer& l;
  const Values &x, &w, &r;
  Values dx, dw, dr, db;
  WeightGradients(const Layer& l, const Values& x, const Values& w, const Values& r);
  void input(int64_t d, int64_t row, int64_t x_row, double slope);
  void recurrent(int64_t d, int64_t row, double slope, const double* h, double* dh);
  void write(const KernelCall& c) const;  // the first four outputs
};

struct Gate {
  double value, slope;  // and what the value changes by with the sum
};

// The activations of a layer with the bound of their sums.
class Gates {
 public:
  Gates(const recurrent::Kind& kind, const Attrs& attrs);
  double value(int64_t d, int64_t which, double sum) const { return of_sum(d, which, sum).value; }
  Gate of_sum(int64_t d, int64_t which, double sum) const;
  // Without the bound: of a cell's state.
  Gate of_state(int64_t d, int64_t which, double state) const;
  // What the forward keeps, and what the gradient reads of it.
  double kept(double value, double sum) const { return usual_ ? value : sum; }
  Gate read(int64_t d, int64_t which, double kept) const {
    return usual_ ? of_value(d, which, kept) : of_sum(d, which, kept);
  }
  Gate of_value(int64_t d, int64_t which, double value) const;

 private:
  const recurrent::Activation& at(int64_t d, int64_t which) const {
    return all_[static_cast<size_t>(d) * each_ + static_cast<size_t>(which)];
  }
  std::vector<recurrent::Activation> all_;
  size_t each_;
  double clip_;
  bool usual_;
};

}  // namespace ort::reference
