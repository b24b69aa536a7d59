// RNN, whose one gate is tanh, relu or sigmoid, and its gradient, which y says.
#include "providers/cpu/provider.h"
#include "providers/cpu/recurrent/layer.h"

namespace ort::cpu {
namespace {

using recurrent::Function;

TileOp tile_op_of(Function function) {
  return function == Function::relu      ? TileOp::relu
         : function == Function::sigmoid ? TileOp::sigmoid
                                         : TileOp::tanh;
}

std::vector<Function> functions_of(const Request& r, const Layer& l) {
  std::vector<Function> functions;
  for (const auto& one : recurrent::activations_of(recurrent::rnn(), r.attrs(), l.D))
    functions.push_back(one.function);
  return functions;
}

template <class T>
struct RnnForward {
  const Layer& l;
  const Lengths& lengths;
  const std::vector<TileStep<T>>& act;
  const StateProduct<T>& recurrent;
  const T *x, *w, *r, *b, *h0;
  T* y;       // may be null: nobody wants it
  T* h;       // the state, at the end the last one
  T* sums;    // [T B, H]
  T* packed;  // r of one direction, where it is no constant
  const Packs<T>&w_packs, &r_packs;

  void run(int64_t d) const {
    const int64_t H = l.H;
    sums_of_inputs(l, d, x, w, w_packs[d], b, H, sums);
    start_state(l, d, h0, h);
    const T* matrix = r_packs.get(d, recurrent, r + d * H * H, packed);
    for (int64_t n = 0; n < l.T; ++n) {
      const int64_t t = l.step(d, n);
      recurrent.run(l.state_rows<const T>(h, d), l.x_rows(sums, t, H), matrix);
      each_row(l, [&](int64_t row) {
        T *to = y ? y + l.y_row(t, d, row) * H : nullptr, *state = h + l.state_row(d, row) * H;
        if (lengths.has(row, t)) {
          act[static_cast<size_t>(d)](state, sums + l.x_row(t, row) * H, nullptr, nullptr, H);
          if (to) std::copy_n(state, H, to);
        } else if (to) {
          std::fill_n(to, H, T{});
        }
      });
    }
    lengths.forget_empty(l, d, h);
  }
};

template <class T>
std::unique_ptr<Kernel> rnn(const Request& r) {
  const Layer l = layer_of(r, 0, 1);
  const bool bias = r.has(3), lens = r.has(4), first_h = r.has(5), wants_y = r.wants(0);
  if (r.wants(2)) return nullptr;  // the sums, which no gradient of these activations reads
  std::vector<TileStep<T>> act;
  for (const Function function : functions_of(r, l)) act.emplace_back(tile_op_of(function), 0);
  const StateProduct<T> recurrent(l.B, l.H, l.H, true, true);
  const Packs<T> w_packs(r.in(1)), r_packs(r.in(2));
  Scratch scratch;
  const int64_t sums = scratch.take(l.rows() * l.H);
  const int64_t packed = scratch.take(r.in(2).constant ? 0 : recurrent.packed());
  const int64_t h = scratch.take_unwanted(r, 1, l.states());
  return make_kernel(
      "RNN",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const Lengths lengths(l, lens ? input<int32_t>(args, 4) : nullptr);
        const RnnForward<T> f{l,
                              lengths,
                              act,
                              recurrent,
                              input<T>(args, 0),
                              input<T>(args, 1),
                              input<T>(args, 2),
                              bias ? input<T>(args, 3) : nullptr,
                              first_h ? input<T>(args, 5) : nullptr,
                              wants_y ? output<T>(args, 0) : nullptr,
                              h < 0 ? output<T>(args, 1) : memory + h,
                              memory + sums,
                              memory + packed,
                              w_packs,
                              r_packs};
        for (int64_t d = 0; d < l.D; ++d) f.run(d);
      },
      scratch.bytes(sizeof(T)));
}

template <class T>
struct RnnSweep {
  const Layer& l;
  const Lengths& lengths;
  const std::vector<Function>& functions;
  const StateProduct<T>& recurrent;
  const T *dy, *dy_h, *x, *w, *r, *h0, *y;
  T *dx, *dw, *dr, *db, *dh;
  T *da, *before;  // [T B, H] each
  T* packed;       // r of one direction

  static T slope_of(Function function, T value) {
    if (function == Function::relu) return value > 0 ? T{1} : T{};
    return function == Function::sigmoid ? value * (1 - value) : 1 - value * value;
  }

  void row_back(int64_t d, int64_t n, int64_t row) const {
    const int64_t H = l.H, t = l.step(d, n), at = l.y_row(t, d, row) * H;
    T *slopes = da + l.x_row(t, row) * H, *h_before = before + l.x_row(t, row) * H;
    if (!lengths.has(row, t)) {
      std::fill_n(slopes, H, T{});
      std::fill_n(h_before, H, T{});
      return;
    }
    const int64_t state = l.state_row(d, row) * H, past = lengths.row_before(l, d, n, row);
    std::copy_n(past < 0 ? h0 + state : y + past * H, H, h_before);
    const Function function = functions[static_cast<size_t>(d)];
    T* dstate = dh + state;
    for (int64_t k = 0; k < H; ++k)
      slopes[k] = (dstate[k] + dy[at + k]) * slope_of(function, y[at + k]);
    std::fill_n(dstate, H, T{});
  }

  void run(int64_t d) const {
    const int64_t H = l.H;
    start_state(l, d, dy_h, dh);
    recurrent.pack(r + d * H * H, packed);
    for (int64_t n = l.T; n-- > 0;) {
      each_row(l, [&](int64_t row) { row_back(d, n, row); });
      recurrent.run(l.x_rows<const T>(da, l.step(d, n), H), l.state_rows(dh, d), packed);
    }
    lengths.forget_empty(l, d, dh);
    gradients_of_inputs(l, d, da, x, w, dx, dw, db);
    std::copy_n(db + d * 2 * H, H, db + d * 2 * H + H);
    product_of_steps(H, H, l.rows(), da, true, before, false, false, dr + d * H * H);
  }
};

template <class T>
std::unique_ptr<Kernel> rnn_grad(const Request& r) {
  const Layer l = layer_of(r, 2, 1);
  const std::vector<Function> functions = functions_of(r, l);
  const StateProduct<T> recurrent(l.B, l.H, l.H, false, true);
  Scratch scratch;
  const GradientPlaces places(r, l, 1, scratch);
  const int64_t da = scratch.take(l.rows() * l.H), before = scratch.take(l.rows() * l.H);
  const int64_t packed = scratch.take(recurrent.packed());
  const bool lens = r.has(8);
  return make_kernel(
      "RNNGrad",
      [=](const Args& args) {
        T* memory = static_cast<T*>(args.scratch);
        const auto in = [&](size_t i) { return input<T>(args, i); };
        const auto out = [&](size_t i) { return places.get<T>(args, i); };
        const Lengths lengths(l, lens ? input<int32_t>(args, 8) : nullptr);
        const RnnSweep<T> sweep{l,      lengths,     functions,       recurrent,      in(0),
                                in(1),  in(2),       in(3),           in(4),          in(5),
                                in(6),  out(0),      out(1),          out(2),         out(3),
                                out(4), memory + da, memory + before, memory + packed};
        for (int64_t d = 0; d < l.D; ++d) sweep.run(d);
      },
      scratch.bytes(sizeof(T)));
}

Verdict common_rnn(const Node& node) {
  return require(!recurrent::reads_gates(recurrent::rnn(), node.attrs),
                 "a bound, or an activation other than Tanh, Relu and Sigmoid");
}

}  // namespace

static void register_rnn(KernelTable& table) {
  add_steps(table.op("RNN"), common_rnn, rnn<float>, rnn<double>);
  add_steps(table.op("ort::RNNGrad"), common_rnn, rnn_grad<float>, rnn_grad<double>);
}

const Family<KernelTable> kRnnKernels("cpu", "rnn", register_rnn);

}  // namespace ort::cpu
