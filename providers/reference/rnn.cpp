// LSTM over [T, B, I] with ONNX's gate order i, o, f, c, and its gradient.
#include <algorithm>
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

using Values = std::vector<double>;

struct Layer {
  int64_t steps, batch, inputs, directions, hidden;
  bool reversed(int64_t direction, const std::string& name) const {
    return name == "reverse" || direction == 1;
  }
  // Row of [T, D, B, width].
  int64_t row(int64_t t, int64_t d, int64_t b) const { return (t * directions + d) * batch + b; }
};

Layer layer_of(const KernelCall& c, size_t x, size_t w, size_t r) {
  c.require(c.rank(x) == 3 && c.rank(w) == 3 && c.rank(r) == 3,
            "x has shape {}, w has shape {}, r has shape {}, expected three axes each", c.sizes(x),
            c.sizes(w), c.sizes(r));
  const Layer l{c.sizes(x)[0], c.sizes(x)[1], c.sizes(x)[2], c.sizes(r)[0], c.sizes(r)[2]};
  const std::string& direction = c.attrs().s("direction");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  c.require(l.directions == directions && c.sizes(w) == Sizes{directions, 4 * l.hidden, l.inputs} &&
                c.sizes(r)[1] == 4 * l.hidden,
            "w has shape {}, r has shape {}, x has shape {}, which direction {} does not fit",
            c.sizes(w), c.sizes(r), c.sizes(x), direction);
  return l;
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

Values state_of(const KernelCall& c, const Layer& l, size_t input) {
  const size_t count = static_cast<size_t>(l.directions * l.batch * l.hidden);
  if (!c.has(input)) return Values(count, 0.0);
  Values state = c.all<double>(input);
  c.require(state.size() == count, "input {} has shape {}, expected [{}, {}, {}]", input,
            c.sizes(input), l.directions, l.batch, l.hidden);
  return state;
}

// Everything that one forward call reads and makes.
struct Forward {
  Layer l;
  Values x, w, r, b, p, h, cell, y, gates;
  double clip;
  bool input_forget;

  // The four gates' sums of row (d, batch) before their activations, peepholes left out.
  double sum(int64_t d, int64_t gate, int64_t k, const double* input, const double* hidden) const {
    const int64_t row = d * 4 * l.hidden + gate * l.hidden + k;
    double total = 0.0;
    if (!b.empty()) {
      const double* bias = b.data() + d * 8 * l.hidden + gate * l.hidden + k;
      total = bias[0] + bias[4 * l.hidden];
    }
    for (int64_t i = 0; i < l.inputs; ++i)
      total += w[static_cast<size_t>(row * l.inputs + i)] * input[i];
    for (int64_t j = 0; j < l.hidden; ++j)
      total += r[static_cast<size_t>(row * l.hidden + j)] * hidden[j];
    return total;
  }
  double peep(int64_t d, int64_t which, int64_t k, double state) const {
    return p.empty() ? 0.0 : p[static_cast<size_t>((d * 3 + which) * l.hidden + k)] * state;
  }
  double clipped(double value) const { return clip > 0.0 ? std::clamp(value, -clip, clip) : value; }

  void forget(int64_t d, int64_t row) {
    const int64_t at = (d * l.batch + row) * l.hidden;
    std::fill_n(h.begin() + at, l.hidden, 0.0);
    std::fill_n(cell.begin() + at, l.hidden, 0.0);
  }

  void step(int64_t t, int64_t d, int64_t row) {
    const double* input = x.data() + (t * l.batch + row) * l.inputs;
    double* state_h = h.data() + (d * l.batch + row) * l.hidden;
    double* state_c = cell.data() + (d * l.batch + row) * l.hidden;
    const Values before(state_h, state_h + l.hidden);
    double* saved = gates.data() + l.row(t, d, row) * 5 * l.hidden;
    for (int64_t k = 0; k < l.hidden; ++k) {
      const auto pre = [&](int64_t gate) { return sum(d, gate, k, input, before.data()); };
      const double i = sigmoid(clipped(pre(0) + peep(d, 0, k, state_c[k])));
      const double f =
          input_forget ? 1.0 - i : sigmoid(clipped(pre(2) + peep(d, 2, k, state_c[k])));
      const double g = std::tanh(clipped(pre(3)));
      state_c[k] = f * state_c[k] + i * g;
      const double o = sigmoid(clipped(pre(1) + peep(d, 1, k, state_c[k])));
      state_h[k] = o * std::tanh(state_c[k]);
      y[static_cast<size_t>(l.row(t, d, row) * l.hidden + k)] = state_h[k];
      const double all[5] = {i, o, f, g, state_c[k]};
      for (int64_t gate = 0; gate < 5; ++gate) saved[gate * l.hidden + k] = all[gate];
    }
  }
};

void lstm(const KernelCall& c) {
  const Layer l = layer_of(c, 0, 1, 2);
  Forward f{l,
            c.all<double>(0),
            c.all<double>(1),
            c.all<double>(2),
            {},
            {},
            state_of(c, l, 5),
            state_of(c, l, 6),
            {},
            {},
            0.0,
            c.attrs().i("input_forget") != 0};
  if (c.has(3)) f.b = c.all<double>(3);
  if (c.has(7)) f.p = c.all<double>(7);
  c.require(f.b.empty() || c.sizes(3) == Sizes{l.directions, 8 * l.hidden},
            "b has shape {}, expected [{}, {}]", c.has(3) ? c.sizes(3) : Sizes{}, l.directions,
            8 * l.hidden);
  c.require(f.p.empty() || c.sizes(7) == Sizes{l.directions, 3 * l.hidden},
            "p has shape {}, expected [{}, {}]", c.has(7) ? c.sizes(7) : Sizes{}, l.directions,
            3 * l.hidden);
  f.clip = c.attrs().f("clip", 0.0);
  f.y.resize(static_cast<size_t>(l.steps * l.directions * l.batch * l.hidden), 0.0);
  f.gates.resize(f.y.size() * 5, 0.0);
  std::vector<int64_t> lengths =
      c.has(4) ? c.ints(4) : std::vector<int64_t>(static_cast<size_t>(l.batch), l.steps);
  c.require(static_cast<int64_t>(lengths.size()) == l.batch,
            "sequence_lens has {} elements, expected {}", lengths.size(), l.batch);
  for (int64_t d = 0; d < l.directions; ++d)
    for (int64_t row = 0; row < l.batch; ++row) {
      const int64_t length = lengths[static_cast<size_t>(row)];
      c.require(length >= 0 && length <= l.steps, "sequence length {} is not in 0 to {}", length,
                l.steps);
      const bool reversed = l.reversed(d, c.attrs().s("direction"));
      for (int64_t s = 0; s < length; ++s) f.step(reversed ? length - 1 - s : s, d, row);
      // ONNX does not say what the last state of no steps is; onnxruntime has zeros.
      if (length == 0) f.forget(d, row);
    }
  c.write(0, f.y);
  c.write(1, f.h);
  c.write(2, f.cell);
  c.write(3, f.gates);
}

// The reverse sweep; da holds the gradients of the four gates' sums.
struct Sweep {
  Layer l;
  Values dy, x, w, r, h0, c0, y, gates, dh, dc, dx, dw, dr, db, da;

  void gate_gradients(int64_t d, int64_t row, const double* gate, const double* cell_before) {
    double* dstate = dh.data() + (d * l.batch + row) * l.hidden;
    double* dcell = dc.data() + (d * l.batch + row) * l.hidden;
    for (int64_t k = 0; k < l.hidden; ++k) {
      const double i = gate[k], o = gate[l.hidden + k], f = gate[2 * l.hidden + k],
                   g = gate[3 * l.hidden + k];
      const double bent = std::tanh(gate[4 * l.hidden + k]);
      dcell[k] += dstate[k] * o * (1.0 - bent * bent);
      const double each[4] = {dcell[k] * g * i * (1.0 - i), dstate[k] * bent * o * (1.0 - o),
                              dcell[k] * cell_before[k] * f * (1.0 - f),
                              dcell[k] * i * (1.0 - g * g)};
      for (int64_t n = 0; n < 4; ++n) da[static_cast<size_t>(n * l.hidden + k)] = each[n];
      dcell[k] *= f;
      dstate[k] = 0.0;
    }
  }

  // t_before: the step that came before in this direction's order; negative: the initial state.
  void step(int64_t t, int64_t t_before, int64_t d, int64_t row) {
    const int64_t at = l.row(t, d, row), h_at = (d * l.batch + row) * l.hidden;
    const int64_t past = l.row(t_before, d, row);
    const double* h_before = t_before < 0 ? h0.data() + h_at : y.data() + past * l.hidden;
    const double* c_before =
        t_before < 0 ? c0.data() + h_at : gates.data() + (past * 5 + 4) * l.hidden;
    for (int64_t k = 0; k < l.hidden; ++k)
      dh[static_cast<size_t>(h_at + k)] += dy[static_cast<size_t>(at * l.hidden + k)];
    gate_gradients(d, row, gates.data() + at * 5 * l.hidden, c_before);
    const int64_t x_at = (t * l.batch + row) * l.inputs;
    for (int64_t n = 0; n < 4 * l.hidden; ++n) {
      const double slope = da[static_cast<size_t>(n)];
      const int64_t weight = d * 4 * l.hidden + n;
      for (int64_t i = 0; i < l.inputs; ++i) {
        dw[static_cast<size_t>(weight * l.inputs + i)] += slope * x[static_cast<size_t>(x_at + i)];
        dx[static_cast<size_t>(x_at + i)] += slope * w[static_cast<size_t>(weight * l.inputs + i)];
      }
      for (int64_t j = 0; j < l.hidden; ++j) {
        dr[static_cast<size_t>(weight * l.hidden + j)] += slope * h_before[j];
        dh[static_cast<size_t>(h_at + j)] += slope * r[static_cast<size_t>(weight * l.hidden + j)];
      }
      for (const int64_t half : {0, 4})
        db[static_cast<size_t>((d * 8 + half) * l.hidden + n)] += slope;
    }
  }
};

// Inputs: dy, dy_h, dy_c, x, w, r, initial_h, initial_c, y, gates.
void lstm_grad(const KernelCall& c) {
  const Layer l = layer_of(c, 3, 4, 5);
  const size_t states = static_cast<size_t>(l.steps * l.directions * l.batch * l.hidden);
  Sweep s{l,
          c.all<double>(0),
          c.all<double>(3),
          c.all<double>(4),
          c.all<double>(5),
          state_of(c, l, 6),
          state_of(c, l, 7),
          c.all<double>(8),
          c.all<double>(9),
          state_of(c, l, 1),
          state_of(c, l, 2),
          Values(static_cast<size_t>(element_count(c.sizes(3)))),
          Values(static_cast<size_t>(element_count(c.sizes(4)))),
          Values(static_cast<size_t>(element_count(c.sizes(5)))),
          Values(static_cast<size_t>(l.directions * 8 * l.hidden)),
          Values(static_cast<size_t>(4 * l.hidden))};
  c.require(s.dy.size() == states && s.y.size() == states && s.gates.size() == 5 * states,
            "dy has shape {}, y has shape {}, gates have shape {}", c.sizes(0), c.sizes(8),
            c.sizes(9));
  for (int64_t d = 0; d < l.directions; ++d) {
    const bool reversed = l.reversed(d, c.attrs().s("direction"));
    for (int64_t row = 0; row < l.batch; ++row)
      for (int64_t step = l.steps; step-- > 0;) {
        const int64_t t = reversed ? l.steps - 1 - step : step;
        s.step(t, step == 0 ? -1 : (reversed ? t + 1 : t - 1), d, row);
      }
  }
  c.write(0, s.dx);
  c.write(1, s.dw);
  c.write(2, s.dr);
  c.write(3, s.db);
  c.write(4, s.dh);
  c.write(5, s.dc);
}

Verdict usual_activations(const Node& node) {
  const Attr* attr = node.attrs.find("activations");
  const auto* names = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
  for (size_t i = 0; names && i < names->size(); ++i)
    if ((*names)[i] != (i % 3 == 0 ? "Sigmoid" : "Tanh"))
      return Verdict::no("activations other than Sigmoid, Tanh, Tanh");
  return require(node.attrs.i("layout") == 0, "layout 1");
}

}  // namespace

static void register_rnn(KernelTable& table) {
  add(table, "LSTM", kNumbers, lstm, usual_activations);
  add(table, "ort::LSTMGrad", kNumbers, lstm_grad);
}

const Family<KernelTable> kFamily("reference", "rnn", register_rnn);

}  // namespace ort::reference
