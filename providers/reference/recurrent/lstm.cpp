// LSTM with ONNX's gate order i, o, f, c, and its gradient.
#include <algorithm>
#include <cmath>

#include "providers/reference/recurrent/layer.h"

namespace ort::reference {
namespace {

// Which activation a gate has.
constexpr int64_t kOfGates = 0, kOfCell = 1, kOfState = 2;

// Everything that one forward call reads and makes.
struct LstmForward {
  const Layer& l;
  const Gates& act;
  Weights weights;
  Values x, p, h, cell, y, kept;
  bool input_forget;

  double peep(int64_t d, int64_t which, int64_t k, double state) const {
    return p.empty() ? 0.0 : p[static_cast<size_t>((d * 3 + which) * l.hidden + k)] * state;
  }

  void step(int64_t t, int64_t d, int64_t b) {
    const double* input = x.data() + l.x_row(t, b) * l.inputs;
    const auto before = h.begin() + l.state_row(d, b) * l.hidden;
    const Values state(before, before + l.hidden);
    advance(t, d, b, [&](int64_t row) { return weights.sum(d, row, input, state.data()); });
  }

  // sum: that of a row of both weights, without peepholes.
  template <class F>
  void advance(int64_t t, int64_t d, int64_t b, F sum) {
    double* state_h = h.data() + l.state_row(d, b) * l.hidden;
    double* state_c = cell.data() + l.state_row(d, b) * l.hidden;
    const int64_t at = l.y_row(t, d, b);
    double* saved = kept.data() + at * 5 * l.hidden;
    for (int64_t k = 0; k < l.hidden; ++k) {
      const auto pre = [&](int64_t gate) { return sum(gate * l.hidden + k); };
      const double i_sum = pre(0) + peep(d, 0, k, state_c[k]);
      const double f_sum = pre(2) + peep(d, 2, k, state_c[k]);
      const double g_sum = pre(3);
      const double i = act.value(d, kOfGates, i_sum), g = act.value(d, kOfCell, g_sum);
      const double f = input_forget ? 1.0 - i : act.value(d, kOfGates, f_sum);
      state_c[k] = f * state_c[k] + i * g;
      const double o_sum = pre(1) + peep(d, 1, k, state_c[k]);
      const double o = act.value(d, kOfGates, o_sum);
      state_h[k] = o * act.of_state(d, kOfState, state_c[k]).value;
      y[static_cast<size_t>(at * l.hidden + k)] = state_h[k];
      const double all[5] = {act.kept(i, i_sum), act.kept(o, o_sum), act.kept(f, f_sum),
                             act.kept(g, g_sum), state_c[k]};
      for (int64_t gate = 0; gate < 5; ++gate) saved[gate * l.hidden + k] = all[gate];
    }
  }
};

void lstm(const KernelCall& c) {
  const Layer l(c, recurrent::lstm(), 0, 4);
  const Gates act(recurrent::lstm(), c.attrs());
  LstmForward f{
      l,
      act,
      {l, c.all<double>(1), c.all<double>(2), l.numbers_of(c, 3, {l.directions, 8 * l.hidden})},
      c.all<double>(0),
      l.numbers_of(c, 7, {l.directions, 3 * l.hidden}),
      l.state_of(c, 5),
      l.state_of(c, 6),
      Values(l.all(1)),
      Values(l.all(5)),
      c.attrs().i("input_forget") != 0};
  forwards(l, {&f.h, &f.cell}, [&](int64_t t, int64_t d, int64_t b) { f.step(t, d, b); });
  c.write(0, f.y);
  c.write(1, f.h);
  c.write(2, f.cell);
  c.write(3, f.kept);
}

// h of a direction before the n-th step, as whole numbers of a scale. A sequence that ended before
// has zeros there, which every range has.
double rounded(const Layer& l, int64_t d, int64_t n, const Values& h, Values& whole) {
  float low = 0.0f, high = 0.0f;
  const auto each = [&](auto f) {
    for (int64_t b = 0; b < l.batch; ++b)
      for (int64_t k = 0; k < l.hidden && n <= l.length(b); ++k)
        f(b * l.hidden + k, static_cast<float>(h[l.state_row(d, b) * l.hidden + k]));
  };
  each([&](int64_t, float v) { low = std::min(low, v), high = std::max(high, v); });
  const float step = (high - low) / 255.0f;  // of states that are tiny it is nothing
  const float scale = step == 0.0f ? 1.0f : step;
  const float zero = std::nearbyint(std::clamp(-low / scale, 0.0f, 255.0f));
  each([&](int64_t at, float v) {
    whole[at] = std::clamp(std::nearbyint(v / scale), -zero, 255.0f - zero);
  });
  return scale;
}

// Inputs: sums of the inputs, r, r_scale, sequence_lens, initial_h, initial_c, p.
void dynamic_lstm(const KernelCall& c) {
  const Layer l(c, recurrent::lstm(), 0, 1, 3);
  const Gates act(recurrent::lstm(), c.attrs());
  const int64_t width = 4 * l.hidden;
  const Values sums = l.numbers_of(c, 0, {l.steps, l.batch, l.directions * width});
  const Values scales = l.numbers_of(c, 2, {l.directions, width});
  LstmForward f{l,
                act,
                {l, {}, c.all<double>(1), {}},
                {},
                l.numbers_of(c, 6, {l.directions, 3 * l.hidden}),
                l.state_of(c, 4),
                l.state_of(c, 5),
                Values(l.all(1)),
                Values(l.all(5)),
                c.attrs().i("input_forget") != 0};
  Values whole(static_cast<size_t>(l.batch * l.hidden));
  for (int64_t d = 0; d < l.directions; ++d) {
    for (int64_t n = 0; n < l.steps; ++n) {
      const double scale = rounded(l, d, n, f.h, whole);
      for (int64_t b = 0; b < l.batch; ++b) {
        if (n >= l.length(b)) continue;
        const int64_t t = l.step(d, b, n), at = (l.x_row(t, b) * l.directions + d) * width;
        f.advance(t, d, b, [&](int64_t row) {
          const double met = f.weights.recurrent(d, row, whole.data() + b * l.hidden);
          return sums[at + row] + met * scale * scales[d * width + row];
        });
      }
    }
    for (int64_t b = 0; b < l.batch; ++b) l.forget_empty({&f.h, &f.cell}, d, b);
  }
  c.write(0, f.y);
  c.write(1, f.h);
  c.write(2, f.cell);
}

// The reverse sweep.
struct LstmSweep {
  const Layer& l;
  const Gates& act;
  WeightGradients weights;
  Values p, h0, c0, dy, y, kept, dh, dc, dp;
  bool input_forget;

  double peephole(int64_t d, int64_t which, int64_t k) const {
    return p.empty() ? 0.0 : p[static_cast<size_t>((d * 3 + which) * l.hidden + k)];
  }
  void add_peephole(int64_t d, int64_t which, int64_t k, double slope) {
    if (!p.empty()) dp[static_cast<size_t>((d * 3 + which) * l.hidden + k)] += slope;
  }

  // The slopes of the four sums of number k; dcell goes from after the step to before it.
  void slopes(int64_t d, int64_t k, const double* saved, double before, double dstate,
              double* dcell, double* to) {
    const auto read = [&](int64_t gate, int64_t which) {
      return act.read(d, which, saved[gate * l.hidden + k]);
    };
    const Gate i = read(0, kOfGates), o = read(1, kOfGates), g = read(3, kOfCell);
    const Gate f = input_forget ? Gate{1.0 - i.value, 0.0} : read(2, kOfGates);
    const double cell = saved[4 * l.hidden + k];
    const Gate bent = act.of_state(d, kOfState, cell);
    to[1] = dstate * bent.value * o.slope;
    const double slope = *dcell + dstate * o.value * bent.slope + to[1] * peephole(d, 1, k);
    to[0] = slope * (input_forget ? g.value - before : g.value) * i.slope;
    to[2] = slope * before * f.slope;
    to[3] = slope * i.value * g.slope;
    *dcell = slope * f.value + to[0] * peephole(d, 0, k) + to[2] * peephole(d, 2, k);
    add_peephole(d, 0, k, to[0] * before);
    add_peephole(d, 1, k, to[1] * cell);
    add_peephole(d, 2, k, to[2] * before);
  }

  // t_before: the step that came before in this direction's order; negative: the initial state.
  void step(int64_t t, int64_t t_before, int64_t d, int64_t b) {
    const int64_t at = l.y_row(t, d, b), state = l.state_row(d, b) * l.hidden;
    const int64_t past = t_before < 0 ? 0 : l.y_row(t_before, d, b);
    const double* h_before = t_before < 0 ? h0.data() + state : y.data() + past * l.hidden;
    const double* c_before =
        t_before < 0 ? c0.data() + state : kept.data() + (past * 5 + 4) * l.hidden;
    Values dstate(dh.begin() + state, dh.begin() + state + l.hidden);
    std::fill_n(dh.begin() + state, l.hidden, 0.0);
    for (int64_t k = 0; k < l.hidden; ++k) {
      double each[4];
      slopes(d, k, kept.data() + at * 5 * l.hidden, c_before[k],
             dstate[static_cast<size_t>(k)] + dy[static_cast<size_t>(at * l.hidden + k)],
             dc.data() + state + k, each);
      for (int64_t gate = 0; gate < 4; ++gate) {
        weights.input(d, gate * l.hidden + k, l.x_row(t, b), each[gate]);
        weights.recurrent(d, gate * l.hidden + k, each[gate], h_before, dh.data() + state);
      }
    }
  }
};

// Inputs: dy, dy_h, dy_c, x, w, r, initial_h, initial_c, y, gates, sequence_lens, p.
void lstm_grad(const KernelCall& c) {
  const Layer l(c, recurrent::lstm(), 3, 10);
  const Gates act(recurrent::lstm(), c.attrs());
  const Values x = c.all<double>(3), w = c.all<double>(4), r = c.all<double>(5);
  LstmSweep s{l,
              act,
              {l, x, w, r},
              l.numbers_of(c, 11, {l.directions, 3 * l.hidden}),
              l.state_of(c, 6),
              l.state_of(c, 7),
              c.all<double>(0),
              c.all<double>(8),
              c.all<double>(9),
              l.state_of(c, 1),
              l.state_of(c, 2),
              Values(static_cast<size_t>(l.directions * 3 * l.hidden)),
              c.attrs().i("input_forget") != 0};
  c.require(s.dy.size() == l.all(1) && s.y.size() == l.all(1) && s.kept.size() == l.all(5),
            "dy has shape {}, y has shape {}, gates have shape {}", c.sizes(0), c.sizes(8),
            c.sizes(9));
  backwards(l, {&s.dh, &s.dc},
            [&](int64_t t, int64_t t_before, int64_t d, int64_t b) { s.step(t, t_before, d, b); });
  s.weights.write(c);
  c.write(4, s.dh);
  c.write(5, s.dc);
  c.write(6, s.dp);
}

}  // namespace

static void register_lstm(KernelTable& table) {
  add(table, "LSTM", kNumbers, lstm);
  add(table, "ort::DynamicQuantizeLSTM", kF32, dynamic_lstm);
  add(table, "ort::LSTMGrad", kNumbers, lstm_grad);
}

const Family<KernelTable> kLstmKernels("reference", "lstm", register_lstm);

}  // namespace ort::reference
