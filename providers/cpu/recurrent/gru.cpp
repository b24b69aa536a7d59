// GRU with ONNX's gate order z, r, h, and its gradient. The `gates` output holds of every step the
// three activated gates, then what the reset gate met: r h + rb where it comes after the product,
// the reset state where before. 4 H for each row of y.
#include "providers/cpu/provider.h"
#include "providers/cpu/recurrent/layer.h"

namespace ort::cpu {
namespace {

template <class T>
struct GruSteps {
  TileStep<T> sigmoid{TileOp::sigmoid, 0}, tanh{TileOp::tanh, 0};
};

// How the recurrent weights are read: all gates at once where the reset gate comes after the
// product; else z and r first, then h of the reset state. `back`: for the gradient.
template <class T>
struct Recurrent {
  Recurrent(const Layer& l, bool after, bool back)
      : H(l.H),
        first_rows(after ? 3 * l.H : 2 * l.H),
        first(back ? StateProduct<T>(l.B, l.H, first_rows, false, true)
                   : StateProduct<T>(l.B, first_rows, l.H, true, !after)),
        second(l.B, l.H, l.H, !back, !back) {}
  int64_t packed() const { return whole_lines(first.packed()) + second.packed(); }
  int64_t second_at() const { return whole_lines(first.packed()); }
  // r [3 H, H] of one direction.
  void pack(const T* r, T* to) const {
    first.pack(r, to);
    if (first_rows < 3 * H) second.pack(r + 2 * H * H, to + second_at());
  }

  int64_t H, first_rows;
  StateProduct<T> first, second;
};

template <class T>
struct GruForward {
  const Layer& l;
  const Lengths& lengths;
  const GruSteps<T>& steps;
  const Recurrent<T>& recurrent;
  bool after;
  const T *x, *w, *r, *b, *h0;
  T *y, *gates;  // may be null: nobody wants them
  T* h;          // the state, at the end the last one
  T* sums;       // [T B, 3 H]
  T* part;       // [B, 3 H]: the state's product, or [B, H] the reset states
  T* packed;     // r of one direction, where it is no constant
  const Packs<T>&w_packs, &first_packs, &second_packs;

  void run(int64_t d) const {
    const int64_t H = l.H;
    sums_of_inputs(l, d, x, w, w_packs[d], b, after ? 2 * H : 3 * H, sums);
    start_state(l, d, h0, h);
    const T* matrix = r + d * 3 * H * H;
    const T* first = first_packs.get(d, recurrent.first, matrix, packed);
    const T* second = after ? nullptr
                            : second_packs.get(d, recurrent.second, matrix + 2 * H * H,
                                               packed + recurrent.second_at());
    for (int64_t n = 0; n < l.T; ++n)
      after ? step_after(d, l.step(d, n), first) : step_before(d, l.step(d, n), first, second);
    lengths.forget_empty(l, d, h);
  }

  void step_after(int64_t d, int64_t t, const T* matrix) const {
    const int64_t H = l.H;
    recurrent.first.run(l.state_rows<const T>(h, d), {part, 3 * H}, matrix);
    const T* bias = b ? b + d * 6 * H + 5 * H : nullptr;
    each_row(l, [&](int64_t row) {
      if (!lengths.has(row, t)) return leave_out(d, t, row);
      T *gate = sums + l.x_row(t, row) * 3 * H, *met = part + row * 3 * H;
      for (int64_t k = 0; k < 2 * H; ++k) gate[k] += met[k];
      steps.sigmoid(gate, gate, nullptr, nullptr, 2 * H);
      met += 2 * H;
      for (int64_t k = 0; bias && k < H; ++k) met[k] += bias[k];
      for (int64_t k = 0; k < H; ++k) gate[2 * H + k] += gate[H + k] * met[k];
      finish(d, t, row, gate, met);
    });
  }

  void step_before(int64_t d, int64_t t, const T* first, const T* second) const {
    const int64_t H = l.H;
    const Rows<T> all = l.x_rows(sums, t, 3 * H);
    recurrent.first.run(l.state_rows<const T>(h, d), all, first);
    each_row(l, [&](int64_t row) {
      T* gate = sums + l.x_row(t, row) * 3 * H;
      const T* state = h + l.state_row(d, row) * H;
      steps.sigmoid(gate, gate, nullptr, nullptr, 2 * H);
      for (int64_t k = 0; k < H; ++k) part[row * H + k] = gate[H + k] * state[k];
    });
    recurrent.second.run({part, H}, {all.data + 2 * H, all.apart}, second);
    each_row(l, [&](int64_t row) {
      if (!lengths.has(row, t)) return leave_out(d, t, row);
      finish(d, t, row, sums + l.x_row(t, row) * 3 * H, part + row * H);
    });
  }

  // One row of one step: z and r are there, and the sum of h.
  void finish(int64_t d, int64_t t, int64_t row, T* gate, const T* met) const {
    const int64_t H = l.H, at = l.y_row(t, d, row);
    T *z = gate, *n = gate + 2 * H, *state = h + l.state_row(d, row) * H;
    steps.tanh(n, n, nullptr, nullptr, H);
    for (int64_t k = 0; k < H; ++k) state[k] = n[k] + z[k] * (state[k] - n[k]);
    if (y) std::copy_n(state, H, y + at * H);
    if (!gates) return;
    std::copy_n(gate, 3 * H, gates + at * 4 * H);
    std::copy_n(met, H, gates + at * 4 * H + 3 * H);
  }

  void leave_out(int64_t d, int64_t t, int64_t row) const {
    const int64_t at = l.y_row(t, d, row);
    if (y) std::fill_n(y + at * l.H, l.H, T{});
    if (gates) std::fill_n(gates + at * 4 * l.H, 4 * l.H, T{});
  }
};

template <class T>
std::unique_ptr<Kernel> gru(const Request& r) {
  const Layer l = layer_of(r, 0, 3);
  const bool after = r.attrs().i("linear_before_reset", 0) != 0;
  const bool bias = r.has(3), lens = r.has(4), first_h = r.has(5);
  const bool wants_y = r.wants(0), wants_gates = r.wants(2);
  const GruSteps<T> steps;
  const Recurrent<T> recurrent(l, after, false);
  const Packs<T> w_packs(r.in(1)), first_packs(r.in(2), 0, recurrent.first_rows);
  const Packs<T> second_packs(r.in(2), 2 * l.H, l.H);
  Scratch scratch;
  const int64_t sums = scratch.take(l.rows() * 3 * l.H), part = scratch.take(l.B * 3 * l.H);
  const int64_t packed = scratch.take(r.in(2).constant ? 0 : recurrent.packed());
  const int64_t h = scratch.take_unwanted(r, 1, l.states());
  return make_kernel(
      "GRU",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const Lengths lengths(l, lens ? input<int32_t>(args, 4) : nullptr);
        const GruForward<T> f{l,
                              lengths,
                              steps,
                              recurrent,
                              after,
                              input<T>(args, 0),
                              input<T>(args, 1),
                              input<T>(args, 2),
                              bias ? input<T>(args, 3) : nullptr,
                              first_h ? input<T>(args, 5) : nullptr,
                              wants_y ? output<T>(args, 0) : nullptr,
                              wants_gates ? output<T>(args, 2) : nullptr,
                              h < 0 ? output<T>(args, 1) : memory + h,
                              memory + sums,
                              memory + part,
                              memory + packed,
                              w_packs,
                              first_packs,
                              second_packs};
        for (int64_t d = 0; d < l.D; ++d) f.run(d);
      },
      scratch.bytes(sizeof(T)));
}

// The sweep back: the slopes of the sums as the input's weights and as the recurrent ones see them
// (they differ by the reset gate where it comes after the product), then one product for each.
template <class T>
struct GruSweep {
  const Layer& l;
  const Lengths& lengths;
  const Recurrent<T>& recurrent;
  bool after;
  const T *dy, *dy_h, *x, *w, *r, *h0, *y, *gates;
  T *dx, *dw, *dr, *db, *dh;
  T* da;      // [T B, 3 H]
  T* dq;      // [T B, 3 H] where `after`, else [B, H] of one step: the reset state's gradient
  T* before;  // [T B, H], and as much again of reset states where not `after`
  T* packed;  // r of one direction

  void run(int64_t d) const {
    const int64_t H = l.H;
    start_state(l, d, dy_h, dh);
    recurrent.pack(r + d * 3 * H * H, packed);
    for (int64_t n = l.T; n-- > 0;) {
      const int64_t t = l.step(d, n);
      each_row(l, [&](int64_t row) { row_back(d, n, row); });
      const Rows<const T> all = l.x_rows<const T>(after ? dq : da, t, 3 * H);
      if (!after) {
        recurrent.second.run({all.data + 2 * H, all.apart}, {dq, H},
                             packed + recurrent.second_at());
        each_row(l, [&](int64_t row) { through_reset(d, t, row); });
      }
      recurrent.first.run(all, l.state_rows(dh, d), packed);
    }
    lengths.forget_empty(l, d, dh);
    gradients_of_inputs(l, d, da, x, w, dx, dw, db);
    gradients_of_states(d);
  }

  // dh goes from after the step to before it, without what comes through the products.
  void row_back(int64_t d, int64_t n, int64_t row) const {
    const int64_t H = l.H, t = l.step(d, n), at = l.y_row(t, d, row), x_row = l.x_row(t, row);
    T *slopes = da + x_row * 3 * H, *h_before = before + x_row * H;
    if (!lengths.has(row, t)) return leave_out(x_row);
    const int64_t state = l.state_row(d, row) * H, past = lengths.row_before(l, d, n, row);
    std::copy_n(past < 0 ? h0 + state : y + past * H, H, h_before);
    const T *z = gates + at * 4 * H, *reset = z + H, *new_state = z + 2 * H, *met = z + 3 * H;
    T* dstate = dh + state;
    for (int64_t k = 0; k < H; ++k) {
      const T slope = dstate[k] + dy[at * H + k];
      slopes[k] = slope * (h_before[k] - new_state[k]) * z[k] * (1 - z[k]);
      slopes[2 * H + k] = slope * (1 - z[k]) * (1 - new_state[k] * new_state[k]);
      dstate[k] = slope * z[k];
    }
    if (!after) {
      std::copy_n(met, H, before + (l.rows() + x_row) * H);
      return;
    }
    T* to = dq + x_row * 3 * H;
    for (int64_t k = 0; k < H; ++k) {
      const T slope = slopes[2 * H + k];
      slopes[H + k] = slope * met[k] * reset[k] * (1 - reset[k]);
      to[k] = slopes[k];
      to[H + k] = slopes[H + k];
      to[2 * H + k] = slope * reset[k];
    }
  }

  // dq has the gradients of the reset states.
  void through_reset(int64_t d, int64_t t, int64_t row) const {
    if (!lengths.has(row, t)) return;
    const int64_t H = l.H, x_row = l.x_row(t, row);
    const T *reset = gates + (l.y_row(t, d, row) * 4 + 1) * H, *slope = dq + row * H;
    T *to = da + (x_row * 3 + 1) * H, *dstate = dh + l.state_row(d, row) * H;
    for (int64_t k = 0; k < H; ++k) {
      to[k] = slope[k] * before[x_row * H + k] * reset[k] * (1 - reset[k]);
      dstate[k] += slope[k] * reset[k];
    }
  }

  void leave_out(int64_t x_row) const {
    const int64_t H = l.H;
    std::fill_n(da + x_row * 3 * H, 3 * H, T{});
    std::fill_n(before + x_row * H, H, T{});
    if (after)
      std::fill_n(dq + x_row * 3 * H, 3 * H, T{});
    else
      std::fill_n(before + (l.rows() + x_row) * H, H, T{});
  }

  void gradients_of_states(int64_t d) const {
    const int64_t H = l.H, rows = l.rows();
    T *bias = db + (d * 2 + 1) * 3 * H, *to = dr + d * 3 * H * H;
    if (after) {
      product_of_steps(3 * H, H, rows, dq, true, before, false, false, to);
      sum_rows(rows, 3 * H, dq, bias);
      return;
    }
    std::copy_n(bias - 3 * H, 3 * H, bias);
    const auto product = [&](int64_t first, int64_t count, const T* states) {
      gemm(Gemm<T>{.m = count,
                   .n = H,
                   .k = rows,
                   .a = stored(da + first, 3 * H, true),
                   .b = stored(states, H),
                   .c = to + first * H,
                   .c_row = H});
    };
    product(0, 2 * H, before);
    product(2 * H, H, before + rows * H);
  }
};

template <class T>
std::unique_ptr<Kernel> gru_grad(const Request& r) {
  const Layer l = layer_of(r, 2, 3);
  const bool after = r.attrs().i("linear_before_reset", 0) != 0, lens = r.has(8);
  const Recurrent<T> recurrent(l, after, true);
  Scratch scratch;
  const GradientPlaces places(r, l, 1, scratch);
  const int64_t da = scratch.take(l.rows() * 3 * l.H);
  const int64_t dq = scratch.take(after ? l.rows() * 3 * l.H : l.B * l.H);
  const int64_t before = scratch.take(l.rows() * l.H * (after ? 1 : 2));
  const int64_t packed = scratch.take(recurrent.packed());
  return make_kernel(
      "GRUGrad",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const auto in = [&](size_t i) { return input<T>(args, i); };
        const auto out = [&](size_t i) { return places.get<T>(args, i); };
        const Lengths lengths(l, lens ? input<int32_t>(args, 8) : nullptr);
        const GruSweep<T> sweep{
            l,      lengths, recurrent, after,       in(0),       in(1),           in(2),
            in(3),  in(4),   in(5),     in(6),       in(7),       out(0),          out(1),
            out(2), out(3),  out(4),    memory + da, memory + dq, memory + before, memory + packed};
        for (int64_t d = 0; d < l.D; ++d) sweep.run(d);
      },
      scratch.bytes(sizeof(T)));
}

Verdict usual_gru(const Node& node) {
  return require(recurrent::is_usual(recurrent::gru(), node.attrs),
                 "a bound, or activations other than Sigmoid, Tanh");
}

}  // namespace

static void register_gru(KernelTable& table) {
  add_steps(table.op("GRU"), usual_gru, gru<float>, gru<double>);
  add_steps(table.op("ort::GRUGrad"), usual_gru, gru_grad<float>, gru_grad<double>);
}

const Family<KernelTable> kGruKernels("cpu", "gru", register_gru);

}  // namespace ort::cpu
