// GRU with ONNX's gate order z, r, h, and its gradient.
#include "providers/reference/recurrent/layer.h"

namespace ort::reference {
namespace {

constexpr int64_t kGatesAct = 0, kStateAct = 1;

// After a step's gates z, r and h, what the reset gate met: r h + rb where it comes after the
// product, the reset state where before.
constexpr int64_t kKept = 4;

struct GruForward {
  const Layer& l;
  const Gates& act;
  Weights weights;
  Values x, h, y, kept;
  bool after;  // linear_before_reset

  void step(int64_t t, int64_t d, int64_t b) {
    const int64_t H = l.hidden, at = l.y_row(t, d, b);
    const double* input = x.data() + l.x_row(t, b) * l.inputs;
    double* state = h.data() + l.state_row(d, b) * H;
    const Values before(state, state + H);
    double* saved = kept.data() + at * kKept * H;
    Values z(before.size()), r(before.size()), reset(before.size());
    for (int64_t k = 0; k < H; ++k) {
      const auto i = static_cast<size_t>(k);
      const double z_sum = weights.sum(d, k, input, before.data());
      const double r_sum = weights.sum(d, H + k, input, before.data());
      z[i] = act.value(d, kGatesAct, z_sum);
      r[i] = act.value(d, kGatesAct, r_sum);
      reset[i] = r[i] * before[i];
      saved[k] = act.kept(z[i], z_sum);
      saved[H + k] = act.kept(r[i], r_sum);
    }
    for (int64_t k = 0; k < H; ++k) {
      const auto i = static_cast<size_t>(k);
      const int64_t row = 2 * H + k;
      const double met = weights.recurrent(d, row, after ? before.data() : reset.data()) +
                         weights.recurrent_bias(d, row);
      const double total =
          weights.input(d, row, input) + weights.input_bias(d, row) + (after ? r[i] * met : met);
      const double n = act.value(d, kStateAct, total);
      state[k] = (1.0 - z[i]) * n + z[i] * before[i];
      y[static_cast<size_t>(at * H + k)] = state[k];
      saved[2 * H + k] = act.kept(n, total);
      saved[3 * H + k] = after ? met : reset[i];
    }
  }
};

void gru(const KernelCall& c) {
  const Layer l(c, recurrent::gru(), 0, 4);
  const Gates act(recurrent::gru(), c.attrs());
  GruForward f{
      l,
      act,
      {l, c.all<double>(1), c.all<double>(2), l.numbers_of(c, 3, {l.directions, 6 * l.hidden})},
      c.all<double>(0),
      l.state_of(c, 5),
      Values(l.all(1)),
      Values(l.all(kKept)),
      c.attrs().i("linear_before_reset") != 0};
  forwards(l, {&f.h}, [&](int64_t t, int64_t d, int64_t b) { f.step(t, d, b); });
  c.write(0, f.y);
  c.write(1, f.h);
  c.write(2, f.kept);
}

struct GruSweep {
  const Layer& l;
  const Gates& act;
  WeightGradients weights;
  Values h0, dy, y, kept, dh;
  bool after;

  void step(int64_t t, int64_t t_before, int64_t d, int64_t b) {
    const int64_t H = l.hidden, at = l.y_row(t, d, b), state = l.state_row(d, b) * H;
    const double* before =
        t_before < 0 ? h0.data() + state : y.data() + l.y_row(t_before, d, b) * H;
    const double* saved = kept.data() + at * kKept * H;
    double* to = dh.data() + state;
    Values dstate(to, to + H), dreset(dstate.size());
    for (int64_t k = 0; k < H; ++k) {
      double& slope = dstate[static_cast<size_t>(k)];
      slope += dy[static_cast<size_t>(at * H + k)];
      to[k] = slope * act.read(d, kGatesAct, saved[k]).value;
    }
    for (int64_t k = 0; k < H; ++k) {
      const double slope = dstate[static_cast<size_t>(k)];
      const Gate z = act.read(d, kGatesAct, saved[k]), r = act.read(d, kGatesAct, saved[H + k]),
                 n = act.read(d, kStateAct, saved[2 * H + k]);
      const double dn = slope * (1.0 - z.value) * n.slope;
      weights.input(d, 2 * H + k, l.x_row(t, b), dn);
      if (after) {
        weights.recurrent(d, 2 * H + k, dn * r.value, before, to);
        dreset[static_cast<size_t>(k)] = dn * saved[3 * H + k];
      } else {
        weights.recurrent(d, 2 * H + k, dn, saved + 3 * H, dreset.data());
      }
      both(d, k, l.x_row(t, b), slope * (before[k] - n.value) * z.slope, before, to);
    }
    for (int64_t k = 0; k < H; ++k) {
      const Gate r = act.read(d, kGatesAct, saved[H + k]);
      double slope = dreset[static_cast<size_t>(k)];
      if (!after) {
        to[k] += slope * r.value;
        slope *= before[k];
      }
      both(d, H + k, l.x_row(t, b), slope * r.slope, before, to);
    }
  }

  void both(int64_t d, int64_t row, int64_t x_row, double slope, const double* h, double* to) {
    weights.input(d, row, x_row, slope);
    weights.recurrent(d, row, slope, h, to);
  }
};

// Inputs: dy, dy_h, x, w, r, initial_h, y, gates, sequence_lens.
void gru_grad(const KernelCall& c) {
  const Layer l(c, recurrent::gru(), 2, 8);
  const Gates act(recurrent::gru(), c.attrs());
  const Values x = c.all<double>(2), w = c.all<double>(3), r = c.all<double>(4);
  GruSweep s{l,
             act,
             {l, x, w, r},
             l.state_of(c, 5),
             c.all<double>(0),
             c.all<double>(6),
             c.all<double>(7),
             l.state_of(c, 1),
             c.attrs().i("linear_before_reset") != 0};
  c.require(s.dy.size() == l.all(1) && s.y.size() == l.all(1) && s.kept.size() == l.all(kKept),
            "dy has shape {}, y has shape {}, gates have shape {}", c.sizes(0), c.sizes(6),
            c.sizes(7));
  backwards(l, {&s.dh},
            [&](int64_t t, int64_t past, int64_t d, int64_t b) { s.step(t, past, d, b); });
  s.weights.write(c);
  c.write(4, s.dh);
}

}  // namespace

static void register_gru(KernelTable& table) {
  add(table, "GRU", kNumbers, gru);
  add(table, "ort::GRUGrad", kNumbers, gru_grad);
}

const Family<KernelTable> kGruKernels("reference", "gru", register_gru);

}  // namespace ort::reference
