// LSTM with ONNX's gate order i, o, f, c, and its gradient. The `gates` output holds the four
// activated gates and the cell state of every step: 5 H for each row of y.
#include "providers/cpu/recurrent/lstm.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

template <class T>
struct LstmForward {
  const Layer& l;
  const Lengths& lengths;
  const LstmSteps<T>& steps;
  const StateProduct<T>& recurrent;
  const T *x, *w, *r, *b, *h0, *c0;
  T *y, *gates;  // may be null: nobody wants them
  T *h, *c;      // the state, at the end the last one
  T* sums;       // [T B, 4 H]
  T* packed;     // r of one direction, where it is no constant
  const Packs<T>&w_packs, &r_packs;

  void run(int64_t d) const {
    const int64_t H = l.H;
    sums_of_inputs(l, d, x, w, w_packs[d], b, 4 * H, sums);
    start_state(l, d, h0, h);
    start_state(l, d, c0, c);
    const T* matrix = r_packs.get(d, recurrent, r + d * 4 * H * H, packed);
    for (int64_t n = 0; n < l.T; ++n) {
      const int64_t t = l.step(d, n);
      recurrent.run(l.state_rows<const T>(h, d), l.x_rows(sums, t, 4 * H), matrix);
      each_row(l, [&](int64_t row) { finish(d, t, row, sums + l.x_row(t, row) * 4 * H); });
    }
    for (T* state : {h, c}) lengths.forget_empty(l, d, state);
  }

  // One row of one step, whose sums of the gates are there.
  void finish(int64_t d, int64_t t, int64_t row, T* gate) const {
    const int64_t H = l.H, at = l.y_row(t, d, row);
    if (!lengths.has(row, t)) {
      if (y) std::fill_n(y + at * H, H, T{});
      if (gates) std::fill_n(gates + at * 5 * H, 5 * H, T{});
      return;
    }
    T *state = c + l.state_row(d, row) * H, *hidden = h + l.state_row(d, row) * H;
    advance(steps, H, gate, state, state, hidden);
    if (y) std::copy(hidden, hidden + H, y + at * H);
    if (!gates) return;
    std::copy(gate, gate + 4 * H, gates + at * 5 * H);
    std::copy(state, state + H, gates + at * 5 * H + 4 * H);
  }
};

template <class T>
std::unique_ptr<Kernel> lstm(const Request& r) {
  const Layer l = layer_of(r, 0, 4);
  const bool bias = r.has(3), lens = r.has(4), first_h = r.has(5), first_c = r.has(6);
  const bool wants_y = r.wants(0), wants_gates = r.wants(3);
  const LstmSteps<T> steps;
  const StateProduct<T> recurrent(l.B, 4 * l.H, l.H, true, true);
  const Packs<T> w_packs(r.in(1)), r_packs(r.in(2));
  Scratch scratch;
  const int64_t sums = scratch.take(l.rows() * 4 * l.H);
  const int64_t packed = scratch.take(r.in(2).constant ? 0 : recurrent.packed());
  const int64_t h = scratch.take_unwanted(r, 1, l.states());
  const int64_t c = scratch.take_unwanted(r, 2, l.states());
  return make_kernel(
      "LSTM",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const Lengths lengths(l, lens ? input<int32_t>(args, 4) : nullptr);
        const LstmForward<T> f{l,
                               lengths,
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
                               h < 0 ? output<T>(args, 1) : memory + h,
                               c < 0 ? output<T>(args, 2) : memory + c,
                               memory + sums,
                               memory + packed,
                               w_packs,
                               r_packs};
        for (int64_t d = 0; d < l.D; ++d) f.run(d);
      },
      scratch.bytes(sizeof(T)));
}

// The sweep back: da, the gradients of the gates' sums of every step, then one product each for x,
// w and r.
template <class T>
struct LstmSweep {
  const Layer& l;
  const Lengths& lengths;
  const LstmSteps<T>& steps;
  const StateProduct<T>& recurrent;
  const T *dy, *dy_h, *dy_c, *x, *w, *r, *h0, *c0, *y, *gates;
  T *dx, *dw, *dr, *db, *dh, *dc;
  T *da, *before, *bent;  // [T B, 4 H], [T B, H] and [B, H] of scratch
  T* packed;              // r of one direction

  // One row of one step; dc goes from after the step to before it.
  void gate_gradients(const T* gate, const T* cell_before, const T* dstate, T* dcell, T* bent,
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

  // The n-th step of a direction; the part of dh that comes through the gates is added after it.
  void row_back(int64_t d, int64_t n, int64_t row) const {
    const int64_t H = l.H, t = l.step(d, n), at = l.y_row(t, d, row);
    T *slopes = da + l.x_row(t, row) * 4 * H, *h_before = before + l.x_row(t, row) * H;
    if (!lengths.has(row, t)) {
      std::fill_n(slopes, 4 * H, T{});
      std::fill_n(h_before, H, T{});
      return;
    }
    const int64_t state = l.state_row(d, row) * H;
    T* dstate = dh + state;
    for (int64_t k = 0; k < H; ++k) dstate[k] += dy[at * H + k];
    const int64_t past = lengths.row_before(l, d, n, row);
    std::copy_n(past < 0 ? h0 + state : y + past * H, H, h_before);
    gate_gradients(gates + at * 5 * H, past < 0 ? c0 + state : gates + (past * 5 + 4) * H, dstate,
                   dc + state, bent + row * H, slopes);
    std::fill_n(dstate, H, T{});
  }

  void run(int64_t d) const {
    const int64_t H = l.H;
    start_state(l, d, dy_h, dh);
    start_state(l, d, dy_c, dc);
    recurrent.pack(r + d * 4 * H * H, packed);
    for (int64_t n = l.T; n-- > 0;) {
      each_row(l, [&](int64_t row) { row_back(d, n, row); });
      recurrent.run(l.x_rows<const T>(da, l.step(d, n), 4 * H), l.state_rows(dh, d), packed);
    }
    for (T* state : {dh, dc}) lengths.forget_empty(l, d, state);
    T* bias = db + d * 8 * H;
    gradients_of_inputs(l, d, da, x, w, dx, dw, db);
    std::copy(bias, bias + 4 * H, bias + 4 * H);
    product_of_steps(4 * H, H, l.rows(), da, true, before, false, false, dr + d * 4 * H * H);
  }
};

template <class T>
std::unique_ptr<Kernel> lstm_grad(const Request& r) {
  const Layer l = layer_of(r, 3, 4);
  const LstmSteps<T> steps;
  const StateProduct<T> recurrent(l.B, l.H, 4 * l.H, false, true);
  Scratch scratch;
  const GradientPlaces places(r, l, 2, scratch);
  const int64_t da = scratch.take(l.rows() * 4 * l.H), before = scratch.take(l.rows() * l.H);
  const int64_t bent = scratch.take(l.B * l.H), packed = scratch.take(recurrent.packed());
  const bool lens = r.has(10);
  return make_kernel(
      "LSTMGrad",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const auto in = [&](size_t i) { return input<T>(args, i); };
        const auto out = [&](size_t i) { return places.get<T>(args, i); };
        const Lengths lengths(l, lens ? input<int32_t>(args, 10) : nullptr);
        const LstmSweep<T> sweep{
            l,      lengths, steps,       recurrent,       in(0),         in(1),
            in(2),  in(3),   in(4),       in(5),           in(6),         in(7),
            in(8),  in(9),   out(0),      out(1),          out(2),        out(3),
            out(4), out(5),  memory + da, memory + before, memory + bent, memory + packed};
        for (int64_t d = 0; d < l.D; ++d) sweep.run(d);
      },
      scratch.bytes(sizeof(T)));
}

}  // namespace

static void register_lstm(KernelTable& table) {
  add_steps(table.op("LSTM"), usual_lstm(7), lstm<float>, lstm<double>);
  add_steps(table.op("ort::LSTMGrad"), usual_lstm(11), lstm_grad<float>, lstm_grad<double>);
}

const Family<KernelTable> kLstmKernels("cpu", "lstm", register_lstm);

}  // namespace ort::cpu
