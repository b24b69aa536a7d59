// Where the numbers of a recurrent layer lie, its sums, its activations.
#include "providers/reference/recurrent/layer.h"

#include <algorithm>
#include <cmath>

namespace ort::reference {
namespace {

using recurrent::Activation;
using recurrent::Function;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

Gate of_tanh(double x) {
  const double value = std::tanh(x);
  return {value, 1.0 - value * value};
}

Gate applied(const Activation& a, double x) {
  const double alpha = a.alpha, beta = a.beta;
  switch (a.function) {
    case Function::affine:
      return {alpha * x + beta, alpha};
    case Function::elu:
      if (x >= 0.0) return {x, 1.0};
      return {alpha * std::expm1(x), alpha * std::exp(x)};
    case Function::hard_sigmoid: {
      const double y = alpha * x + beta;
      return {std::clamp(y, 0.0, 1.0), y > 0.0 && y < 1.0 ? alpha : 0.0};
    }
    case Function::leaky_relu:
      return x >= 0.0 ? Gate{x, 1.0} : Gate{alpha * x, alpha};
    case Function::relu:
      return x > 0.0 ? Gate{x, 1.0} : Gate{x < 0.0 ? 0.0 : x, 0.0};
    case Function::scaled_tanh: {
      const Gate bent = of_tanh(beta * x);
      return {alpha * bent.value, alpha * beta * bent.slope};
    }
    case Function::sigmoid: {
      const double y = sigmoid(x);
      return {y, y * (1.0 - y)};
    }
    case Function::softplus:
      return {softplus(x), sigmoid(x)};
    case Function::softsign: {
      const double scale = 1.0 + std::abs(x);
      return {x / scale, 1.0 / (scale * scale)};
    }
    case Function::tanh:
      return of_tanh(x);
    case Function::thresholded_relu:
      return x >= alpha ? Gate{x, 1.0} : Gate{0.0, 0.0};
  }
  return {};
}

double dot(const double* a, const double* b, int64_t count) {
  double total = 0.0;
  for (int64_t i = 0; i < count; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace

Layer::Layer(const KernelCall& c, const recurrent::Kind& kind, size_t x, size_t r, size_t lengths)
    : batch_first_(c.attrs().i("layout") == 1), reverse_(c.attrs().s("direction") == "reverse") {
  c.require(c.rank(x) == 3 && c.rank(r) == 3,
            "x has shape {}, r has shape {}, expected three axes each", c.sizes(x), c.sizes(r));
  steps = c.sizes(x)[batch_first_ ? 1 : 0];
  batch = c.sizes(x)[batch_first_ ? 0 : 1];
  inputs = c.sizes(x)[2];
  directions = recurrent::directions_of(c.attrs());
  hidden = c.sizes(r)[2];
  gates = kind.gates;
  c.require(c.sizes(r) == Sizes{directions, gates * hidden, hidden},
            "r has shape {}, which direction {} does not fit", c.sizes(r),
            c.attrs().s("direction"));
  lengths_ =
      c.has(lengths) ? c.ints(lengths) : std::vector<int64_t>(static_cast<size_t>(batch), steps);
  c.require(static_cast<int64_t>(lengths_.size()) == batch,
            "sequence_lens has {} elements, expected {}", lengths_.size(), batch);
  for (const int64_t length : lengths_)
    c.require(length >= 0 && length <= steps, "sequence length {} is not in 0 to {}", length,
              steps);
}

Layer::Layer(const KernelCall& c, const recurrent::Kind& kind, size_t x, size_t lengths)
    : Layer(c, kind, x, x + 2, lengths) {
  c.require(c.sizes(x + 1) == Sizes{directions, gates * hidden, inputs},
            "w has shape {}, x has shape {}, which direction {} does not fit", c.sizes(x + 1),
            c.sizes(x), c.attrs().s("direction"));
}

Values Layer::numbers_of(const KernelCall& c, size_t input, Sizes sizes) const {
  if (!c.has(input)) return {};
  c.require(c.sizes(input) == sizes, "input {} has shape {}, expected {}", input, c.sizes(input),
            sizes);
  return c.all<double>(input);
}

Values Layer::state_of(const KernelCall& c, size_t input) const {
  if (!c.has(input)) return Values(states(), 0.0);
  return numbers_of(
      c, input, batch_first_ ? Sizes{batch, directions, hidden} : Sizes{directions, batch, hidden});
}

void Layer::forget_empty(std::initializer_list<Values*> states, int64_t d, int64_t b) const {
  if (length(b) > 0) return;
  for (Values* state : states) std::fill_n(state->begin() + state_row(d, b) * hidden, hidden, 0.0);
}

double Weights::input(int64_t d, int64_t row, const double* x) const {
  return dot(w.data() + (d * l.gates * l.hidden + row) * l.inputs, x, l.inputs);
}

double Weights::recurrent(int64_t d, int64_t row, const double* h) const {
  return dot(r.data() + (d * l.gates * l.hidden + row) * l.hidden, h, l.hidden);
}

double Weights::input_bias(int64_t d, int64_t row) const {
  return b.empty() ? 0.0 : b[static_cast<size_t>(d * 2 * l.gates * l.hidden + row)];
}

double Weights::recurrent_bias(int64_t d, int64_t row) const {
  return b.empty() ? 0.0 : b[static_cast<size_t>((d * 2 + 1) * l.gates * l.hidden + row)];
}

WeightGradients::WeightGradients(const Layer& l, const Values& x, const Values& w, const Values& r)
    : l(l),
      x(x),
      w(w),
      r(r),
      dx(x.size()),
      dw(w.size()),
      dr(r.size()),
      db(static_cast<size_t>(l.directions * 2 * l.gates * l.hidden)) {}

void WeightGradients::input(int64_t d, int64_t row, int64_t x_row, double slope) {
  const auto weight = static_cast<size_t>((d * l.gates * l.hidden + row) * l.inputs);
  const auto at = static_cast<size_t>(x_row * l.inputs);
  for (size_t i = 0; i < static_cast<size_t>(l.inputs); ++i) {
    dw[weight + i] += slope * x[at + i];
    dx[at + i] += slope * w[weight + i];
  }
  db[static_cast<size_t>(d * 2 * l.gates * l.hidden + row)] += slope;
}

void WeightGradients::recurrent(int64_t d, int64_t row, double slope, const double* h, double* dh) {
  const auto weight = static_cast<size_t>((d * l.gates * l.hidden + row) * l.hidden);
  for (size_t j = 0; j < static_cast<size_t>(l.hidden); ++j) {
    dr[weight + j] += slope * h[j];
    dh[j] += slope * r[weight + j];
  }
  db[static_cast<size_t>((d * 2 + 1) * l.gates * l.hidden + row)] += slope;
}

void WeightGradients::write(const KernelCall& c) const {
  c.write(0, dx);
  c.write(1, dw);
  c.write(2, dr);
  c.write(3, db);
}

Gates::Gates(const recurrent::Kind& kind, const Attrs& attrs)
    : all_(recurrent::activations_of(kind, attrs, recurrent::directions_of(attrs))),
      each_(kind.usual.size()),
      clip_(attrs.f("clip", 0.0)),
      usual_(recurrent::is_usual(kind, attrs)) {}

Gate Gates::of_sum(int64_t d, int64_t which, double sum) const {
  if (clip_ <= 0.0) return applied(at(d, which), sum);
  Gate gate = applied(at(d, which), std::clamp(sum, -clip_, clip_));
  if (std::abs(sum) > clip_) gate.slope = 0.0;
  return gate;
}

Gate Gates::of_state(int64_t d, int64_t which, double state) const {
  return applied(at(d, which), state);
}

Gate Gates::of_value(int64_t d, int64_t which, double value) const {
  switch (at(d, which).function) {
    case Function::sigmoid:
      return {value, value * (1.0 - value)};
    case Function::relu:
      return {value, value > 0.0 ? 1.0 : 0.0};
    default:  // of tanh
      return {value, 1.0 - value * value};
  }
}

}  // namespace ort::reference
