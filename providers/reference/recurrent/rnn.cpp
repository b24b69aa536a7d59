// RNN, a layer of one gate, and its gradient.
#include <algorithm>

#include "providers/reference/recurrent/layer.h"

namespace ort::reference {
namespace {

void rnn(const KernelCall& c) {
  const Layer l(c, recurrent::rnn(), 0, 4);
  const Gates act(recurrent::rnn(), c.attrs());
  const Weights weights{l, c.all<double>(1), c.all<double>(2),
                        l.numbers_of(c, 3, {l.directions, 2 * l.hidden})};
  const Values x = c.all<double>(0);
  Values h = l.state_of(c, 5), y(l.all(1)), kept(l.all(1));
  forwards(l, {&h}, [&](int64_t t, int64_t d, int64_t b) {
    double* state = h.data() + l.state_row(d, b) * l.hidden;
    const Values before(state, state + l.hidden);
    for (int64_t k = 0; k < l.hidden; ++k) {
      const double sum = weights.sum(d, k, x.data() + l.x_row(t, b) * l.inputs, before.data());
      const auto at = static_cast<size_t>(l.y_row(t, d, b) * l.hidden + k);
      y[at] = state[k] = act.value(d, 0, sum);
      kept[at] = act.kept(state[k], sum);
    }
  });
  c.write(0, y);
  c.write(1, h);
  c.write(2, kept);
}

// Inputs: dy, dy_h, x, w, r, initial_h, y, gates, sequence_lens.
void rnn_grad(const KernelCall& c) {
  const Layer l(c, recurrent::rnn(), 2, 8);
  const Gates act(recurrent::rnn(), c.attrs());
  const bool reads_gates = recurrent::reads_gates(recurrent::rnn(), c.attrs());
  c.require(!reads_gates || c.has(7), "gates are absent, which these activations need");
  const Values x = c.all<double>(2), w = c.all<double>(3), r = c.all<double>(4);
  const Values dy = c.all<double>(0), y = c.all<double>(6), h0 = l.state_of(c, 5);
  const Values kept = reads_gates ? c.all<double>(7) : y;
  c.require(dy.size() == l.all(1) && y.size() == l.all(1) && kept.size() == l.all(1),
            "dy has shape {}, y has shape {}, x has shape {}", c.sizes(0), c.sizes(6), c.sizes(2));
  Values dh = l.state_of(c, 1);
  WeightGradients weights(l, x, w, r);
  backwards(l, {&dh}, [&](int64_t t, int64_t t_before, int64_t d, int64_t b) {
    const int64_t at = l.y_row(t, d, b) * l.hidden, state = l.state_row(d, b) * l.hidden;
    const double* before =
        t_before < 0 ? h0.data() + state : y.data() + l.y_row(t_before, d, b) * l.hidden;
    const Values dstate(dh.begin() + state, dh.begin() + state + l.hidden);
    std::fill_n(dh.begin() + state, l.hidden, 0.0);
    for (int64_t k = 0; k < l.hidden; ++k) {
      const double saved = kept[static_cast<size_t>(at + k)];
      const Gate gate = reads_gates ? act.read(d, 0, saved) : act.of_value(d, 0, saved);
      const double slope =
          (dstate[static_cast<size_t>(k)] + dy[static_cast<size_t>(at + k)]) * gate.slope;
      weights.input(d, k, l.x_row(t, b), slope);
      weights.recurrent(d, k, slope, before, dh.data() + state);
    }
  });
  weights.write(c);
  c.write(4, dh);
}

}  // namespace

static void register_rnn(KernelTable& table) {
  add(table, "RNN", kNumbers, rnn);
  add(table, "ort::RNNGrad", kNumbers, rnn_grad);
}

const Family<KernelTable> kRnnKernels("reference", "rnn", register_rnn);

}  // namespace ort::reference
