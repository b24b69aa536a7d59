// LSTM over [T, B, I] with ONNX's gate order i, o, f, c, and its gradient. The input's part of all
// gates is one product for all steps; each step then adds the state's part. The `gates` output
// holds the four activated gates and the cell state of every step: [T, D, B, 5 H].
#include <algorithm>
#include <cstring>

#include "csrc/core/parallel.h"
#include "providers/cpu/product/packed_constant.h"
#include "providers/cpu/product/rnn_product.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/tile/tile.h"
#include "providers/cpu/widened.h"

namespace ort::cpu {
namespace {

struct Layer {
  int64_t T, B, I, D, H;
  std::string direction;
  bool reversed(int64_t d) const { return direction == "reverse" || d == 1; }
  // The step that is n-th in the direction's order.
  int64_t step(int64_t d, int64_t n) const { return reversed(d) ? T - 1 - n : n; }
  int64_t row(int64_t t, int64_t d) const { return (t * D + d) * B; }  // of [T, D, B, *]
  int64_t states() const { return D * B * H; }
};

Layer layer_of(const Request& r, size_t x, size_t w, size_t recurrent) {
  const Sizes &xs = r.sizes(x), &ws = r.sizes(w), &rs = r.sizes(recurrent);
  Layer l{xs[0], xs[1], xs[2], rs[0], rs[2], r.attrs().s("direction", "forward")};
  const int64_t directions = l.direction == "bidirectional" ? 2 : 1;
  if (l.D != directions || ws != Sizes{l.D, 4 * l.H, l.I} || rs != Sizes{l.D, 4 * l.H, l.H})
    r.refuse("x has shape {}, w {}, r {}, which direction {} does not fit", xs, ws, rs,
             l.direction);
  return l;
}

constexpr int64_t kGateWork = 30;  // an element of a gate row, in parallel_for's units

// Numbers up to the next cache line, where packed matrices start.
int64_t whole_lines(int64_t numbers) {
  return (numbers + 15) / 16 * 16;
}

template <class T>
struct Steps {
  TileStep<T> sigmoid{TileOp::sigmoid, 0}, tanh{TileOp::tanh, 0};
};

// gates: [i o f c] sums become their activations; the new cell and hidden state are written.
template <class T>
void advance(const Steps<T>& steps, int64_t H, T* gates, const T* cell, T* new_cell, T* hidden) {
  steps.sigmoid(gates, gates, nullptr, nullptr, 3 * H);
  steps.tanh(gates + 3 * H, gates + 3 * H, nullptr, nullptr, H);
  const T *i = gates, *f = gates + 2 * H, *g = gates + 3 * H;
  for (int64_t k = 0; k < H; ++k) new_cell[k] = f[k] * cell[k] + i[k] * g[k];
  steps.tanh(hidden, new_cell, nullptr, nullptr, H);
  for (int64_t k = 0; k < H; ++k) hidden[k] *= gates[H + k];
}

// A matrix of each direction, [D, N, K], packed where it is a constant; else null.
template <class T>
class Packs {
 public:
  Packs(const Operand& matrices) {
    const int64_t n = matrices.sizes[1], k = matrices.sizes[2];
    const T* from = static_cast<const T*>(matrices.constant);
    for (int64_t d = 0; from && d < matrices.sizes[0]; ++d)
      made_.push_back(packed_constant<T>(k, n, stored(from + d * n * k, k, true)));
  }
  const T* operator[](int64_t d) const {
    return made_.empty() ? nullptr : made_[static_cast<size_t>(d)].get();
  }

 private:
  std::vector<std::shared_ptr<const T>> made_;
};

template <class T>
struct Forward {
  const Layer& l;
  const Steps<T>& steps;
  const StateProduct<T>& recurrent;
  const T *x, *w, *r, *b, *h0, *c0;
  T *y, *gates;  // may be null: nobody wants them
  T *h, *c;      // [D, B, H]: the state, at the end the last one
  T* sums;       // [T B, 4 H]
  T* packed;     // r of one direction, where it is no constant
  const Packs<T>&w_packs, &r_packs;

  void start(int64_t d) const {
    const int64_t B = l.B, H = l.H;
    for (int64_t row = 0; row < l.T * B; ++row)
      for (int64_t k = 0; k < 4 * H; ++k)
        sums[row * 4 * H + k] = b ? b[d * 8 * H + k] + b[d * 8 * H + 4 * H + k] : T{};
    product_of_steps(l.T * B, 4 * H, l.I, x, false, w + d * 4 * H * l.I, true, true, sums,
                     w_packs[d]);
    const auto state = [&](T* to, const T* from) {
      const size_t bytes = static_cast<size_t>(B * H) * sizeof(T);
      from ? std::memcpy(to + d * B * H, from + d * B * H, bytes)
           : std::memset(to + d * B * H, 0, bytes);
    };
    state(h, h0);
    state(c, c0);
  }
  void run(int64_t d) const {
    const int64_t B = l.B, H = l.H;
    start(d);
    const T* matrix = r_packs[d];
    if (!matrix) {
      recurrent.pack(r + d * 4 * H * H, packed);
      matrix = packed;
    }
    for (int64_t n = 0; n < l.T; ++n) {
      const int64_t t = l.step(d, n);
      T* step = sums + t * B * 4 * H;
      recurrent.run(h + d * B * H, step, matrix);
      parallel_for(B, B * H * kGateWork, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) finish(d, t, row, step + row * 4 * H);
      });
    }
  }

  // One row of one step, whose sums of the gates are there.
  void finish(int64_t d, int64_t t, int64_t row, T* gate) const {
    const int64_t H = l.H, at = l.row(t, d) + row;
    T *state = c + (d * l.B + row) * H, *hidden = h + (d * l.B + row) * H;
    advance(steps, H, gate, state, state, hidden);
    if (y) std::copy(hidden, hidden + H, y + at * H);
    if (!gates) return;
    std::copy(gate, gate + 4 * H, gates + at * 5 * H);
    std::copy(state, state + H, gates + at * 5 * H + 4 * H);
  }
};

template <class T>
std::unique_ptr<Kernel> lstm(const Request& r) {
  const Layer l = layer_of(r, 0, 1, 2);
  const bool bias = r.has(3), first_h = r.has(5), first_c = r.has(6);
  const bool wants_y = r.wants(0), wants_h = r.wants(1), wants_c = r.wants(2),
             wants_gates = r.wants(3);
  const Steps<T> steps;
  const StateProduct<T> recurrent(l.B, 4 * l.H, l.H, true, true);
  const int64_t packed_at = whole_lines(l.T * l.B * 4 * l.H + 2 * l.states());
  const Packs<T> w_packs(r.in(1)), r_packs(r.in(2));
  const int64_t spare = r.in(2).constant ? 0 : recurrent.packed();
  const auto bytes = static_cast<size_t>(packed_at + spare) * sizeof(T);
  return make_kernel(
      "LSTM",
      [=](const Args& args) {
        T* scratch = static_cast<T*>(args.scratch);
        T* sums = scratch + 2 * l.states();
        const Forward<T> f{l,
                           steps,
                           recurrent,
                           input<T>(args, 0),
                           input<T>(args, 1),
                           input<T>(args, 2),
                           bias ? input<T>(args, 3) : nullptr,
                           first_h ? input<T>(args, 5) : nullptr,
                           first_c ? input<T>(args, 6) : nullptr,
                           wants_y ? output<T>(args, 0) : nullptr,
                           wants_gates ? output<T>(args, 3) : nullptr,
                           wants_h ? output<T>(args, 1) : scratch,
                           wants_c ? output<T>(args, 2) : scratch + l.states(),
                           sums,
                           scratch + packed_at,
                           w_packs,
                           r_packs};
        for (int64_t d = 0; d < l.D; ++d) f.run(d);
      },
      bytes);
}

// The sweep back: da, the gradients of the gates' sums of every step, then one product each for x,
// w and r.
template <class T>
struct Sweep {
  const Layer& l;
  const Steps<T>& steps;
  const StateProduct<T>& recurrent;
  const T *dy, *dy_h, *dy_c, *x, *w, *r, *h0, *c0, *y, *gates;
  T *dx, *dw, *dr, *db, *dh, *dc;
  T *da, *before, *bent;  // [T B, 4 H], [T B, H] and [B, H] of scratch
  T* packed;              // r of one direction

  // One row of one step; dh and dc of the row go from after the step to before it, without the part
  // of dh that comes through the gates.
  void gate_gradients(const T* gate, const T* cell_before, T* dstate, T* dcell, T* bent,
                      T* to) const {
    const int64_t H = l.H;
    steps.tanh(bent, gate + 4 * H, nullptr, nullptr, H);
    for (int64_t k = 0; k < H; ++k) {
      const T i = gate[k], o = gate[H + k], f = gate[2 * H + k], g = gate[3 * H + k];
      const T d = dcell[k] + dstate[k] * o * (1 - bent[k] * bent[k]);
      to[k] = d * g * i * (1 - i);
      to[H + k] = dstate[k] * bent[k] * o * (1 - o);
      to[2 * H + k] = d * cell_before[k] * f * (1 - f);
      to[3 * H + k] = d * i * (1 - g * g);
      dcell[k] = d * f;
    }
  }

  void step_back(int64_t d, int64_t n) const {
    const int64_t B = l.B, H = l.H, t = l.step(d, n);
    T *dstate = dh + d * B * H, *dcell = dc + d * B * H, *slope = da + t * B * 4 * H;
    const int64_t past = n > 0 ? l.row(l.step(d, n - 1), d) : 0;
    parallel_for(B, B * H * kGateWork, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = l.row(t, d) + row, state = (d * B + row) * H;
        for (int64_t k = 0; k < H; ++k) dstate[row * H + k] += dy[at * H + k];
        const T* c_before = n > 0 ? gates + (past + row) * 5 * H + 4 * H : c0 + state;
        const T* h_before = n > 0 ? y + (past + row) * H : h0 + state;
        std::copy(h_before, h_before + H, before + (t * B + row) * H);
        gate_gradients(gates + at * 5 * H, c_before, dstate + row * H, dcell + row * H,
                       bent + row * H, slope + row * 4 * H);
      }
    });
    recurrent.run(slope, dstate, packed);
  }

  void run(int64_t d) const {
    const int64_t B = l.B, H = l.H, rows = l.T * B;
    std::copy(dy_h + d * B * H, dy_h + (d + 1) * B * H, dh + d * B * H);
    std::copy(dy_c + d * B * H, dy_c + (d + 1) * B * H, dc + d * B * H);
    recurrent.pack(r + d * 4 * H * H, packed);
    for (int64_t n = l.T; n-- > 0;) step_back(d, n);
    product_of_steps(rows, l.I, 4 * H, da, false, w + d * 4 * H * l.I, false, d > 0, dx);
    product_of_steps(4 * H, l.I, rows, da, true, x, false, false, dw + d * 4 * H * l.I);
    product_of_steps(4 * H, H, rows, da, true, before, false, false, dr + d * 4 * H * H);
    T* bias = db + d * 8 * H;
    std::fill_n(bias, 4 * H, T{});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < 4 * H; ++k) bias[k] += da[row * 4 * H + k];
    std::copy(bias, bias + 4 * H, bias + 4 * H);
  }
};

// Gradients that nobody wants go to scratch memory.
template <class T>
std::unique_ptr<Kernel> lstm_grad(const Request& r) {
  const Layer l = layer_of(r, 3, 4, 5);
  const Steps<T> steps;
  const int64_t counts[6] = {l.T * l.B * l.I, l.D * 4 * l.H * l.I, l.D * 4 * l.H * l.H,
                             l.D * 8 * l.H,   l.states(),          l.states()};
  std::vector<int64_t> spare(6, -1);
  const StateProduct<T> recurrent(l.B, l.H, 4 * l.H, false, false);
  int64_t numbers = l.T * l.B * 5 * l.H + l.B * l.H;
  for (size_t i = 0; i < 6; ++i) {
    if (r.wants(i)) continue;
    spare[i] = numbers;
    numbers += counts[i];
  }
  const int64_t packed_at = whole_lines(numbers);
  const auto bytes = static_cast<size_t>(packed_at + recurrent.packed()) * sizeof(T);
  return make_kernel(
      "LSTMGrad",
      [=](const Args& args) {
        T* scratch = static_cast<T*>(args.scratch);
        const auto in = [&](size_t i) { return input<T>(args, i); };
        const auto out = [&](size_t i) {
          return spare[i] < 0 ? output<T>(args, i) : scratch + spare[i];
        };
        T* before = scratch + l.T * l.B * 4 * l.H;
        const Sweep<T> sweep{l,
                             steps,
                             recurrent,
                             in(0),
                             in(1),
                             in(2),
                             in(3),
                             in(4),
                             in(5),
                             in(6),
                             in(7),
                             in(8),
                             in(9),
                             out(0),
                             out(1),
                             out(2),
                             out(3),
                             out(4),
                             out(5),
                             scratch,
                             before,
                             before + l.T * l.B * l.H,
                             scratch + packed_at};
        for (int64_t d = 0; d < l.D; ++d) sweep.run(d);
      },
      bytes);
}

Verdict usual_lstm(const Node& node) {
  if (node.has_input(4) || node.has_input(7)) return Verdict::no("sequence lengths or peepholes");
  if (node.attrs.i("layout", 0) != 0 || node.attrs.i("input_forget", 0) != 0 ||
      node.attrs.has("clip"))
    return Verdict::no("layout, input_forget or clip");
  const Attr* attr = node.attrs.find("activations");
  const auto* names = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
  for (size_t i = 0; names && i < names->size(); ++i)
    if ((*names)[i] != (i % 3 == 0 ? "Sigmoid" : "Tanh"))
      return Verdict::no("activations other than Sigmoid, Tanh, Tanh");
  return Verdict::yes();
}

using RecurrentKernel = std::unique_ptr<Kernel>(const Request&);

// Halves are widened once a call: each step adds to a state that stays float32.
void add_steps(KernelList& list, When when, RecurrentKernel of_float, RecurrentKernel of_double) {
  list.add("steps", kF32, when, of_float)
      .add("steps", kF64, when, of_double)
      .add("widened", kF32 | kHalves, when,
           [of_float](const Request& r) { return widened(r, of_float); });
}

}  // namespace

static void register_rnn(KernelTable& table) {
  add_steps(table.op("LSTM"), usual_lstm, lstm<float>, lstm<double>);
  add_steps(table.op("ort::LSTMGrad"), nullptr, lstm_grad<float>, lstm_grad<double>);
}

const Family<KernelTable> kFamily("cpu", "rnn", register_rnn);

}  // namespace ort::cpu
