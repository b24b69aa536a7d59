// An LSTM whose states are rounded to bytes before each product with r. Both are whole numbers in
// float32, which holds their sums: 2^24 is 255 * 127 * 518.
#include "providers/cpu/provider.h"
#include "providers/cpu/recurrent/lstm.h"

namespace ort::cpu {
namespace {

// To the nearest even, of numbers up to 2^22: one addition and its undoing.
float nearest(float x) {
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23
  return (x + kWhole) - kWhole;
}

struct Forward {
  const Layer& l;
  const Lengths& lengths;
  const LstmSteps<float>& steps;
  const StateProduct<float>& recurrent;
  const float *sums, *r, *scales, *h0, *c0;
  float *y, *h, *c;      // y may be null: nobody wants it
  float *whole, *gates;  // [B, H] and [B, 4 H]
  float* packed;
  const Packs<float>& packs;

  void run(int64_t d) const {
    const int64_t H = l.H;
    start_state(l, d, h0, h);
    start_state(l, d, c0, c);
    const float* matrix = packs.get(d, recurrent, r + d * 4 * H * H, packed);
    for (int64_t n = 0; n < l.T; ++n) {
      const float scale = round_states(d, n);
      recurrent.run({whole, H}, {gates, 4 * H}, matrix);
      each_row(l, [&](int64_t row) { finish(d, n, row, scale); });
    }
    for (float* state : {h, c}) lengths.forget_empty(l, d, state);
  }

  // h before the n-th step as whole numbers of the scale that is returned. A sequence that ended
  // before has zeros there, which every range has.
  float round_states(int64_t d, int64_t n) const {
    float low = 0.0f, high = 0.0f;
    for (int64_t b = 0; b < l.B; ++b) {
      if (n > lengths.of(l, b)) continue;
      const float* row = h + l.state_row(d, b) * l.H;
      for (int64_t k = 0; k < l.H; ++k) low = std::min(low, row[k]), high = std::max(high, row[k]);
    }
    const float step = (high - low) / 255.0f;  // of states that are tiny it is nothing
    const float scale = step == 0.0f ? 1.0f : step;
    const float zero = nearest(std::clamp(-low / scale, 0.0f, 255.0f));
    for (int64_t b = 0; b < l.B; ++b) {
      const float* row = h + l.state_row(d, b) * l.H;
      for (int64_t k = 0; k < l.H; ++k)
        whole[b * l.H + k] = std::clamp(nearest(row[k] / scale), -zero, 255.0f - zero);
    }
    return scale;
  }

  // One row of a direction's n-th step, whose product is there; a sequence's last step is the first
  // of the way back.
  void finish(int64_t d, int64_t n, int64_t row, float scale) const {
    const int64_t H = l.H, count = lengths.of(l, row);
    if (n >= count) {
      if (y) std::fill_n(y + l.y_row(n, d, row) * H, H, 0.0f);
      return;
    }
    const int64_t t = l.reversed(d) ? count - 1 - n : n;
    float* gate = gates + row * 4 * H;
    const float *first = sums + (l.x_row(t, row) * l.D + d) * 4 * H, *each = scales + d * 4 * H;
    for (int64_t k = 0; k < 4 * H; ++k) gate[k] = first[k] + gate[k] * (scale * each[k]);
    float *state = c + l.state_row(d, row) * H, *hidden = h + l.state_row(d, row) * H;
    advance(steps, H, gate, state, state, hidden);
    if (y) std::copy(hidden, hidden + H, y + l.y_row(t, d, row) * H);
  }
};

std::unique_ptr<Kernel> dynamic_lstm(const Request& r) {
  const Layer l = layer_of(r, r.sizes(0), r.sizes(1), 4);
  if (r.sizes(0) != Sizes{l.T, l.B, l.D * 4 * l.H} || r.sizes(1) != Sizes{l.D, 4 * l.H, l.H})
    r.refuse("sums have shape {}, r {}, which {} directions do not fit", r.sizes(0), r.sizes(1),
             l.D);
  const bool lens = r.has(3), first_h = r.has(4), first_c = r.has(5), wants_y = r.wants(0);
  const LstmSteps<float> steps;
  const StateProduct<float> recurrent(l.B, 4 * l.H, l.H, true, false);
  const Packs<float> packs(r.in(1));
  Scratch scratch;
  const int64_t whole = scratch.take(l.B * l.H), gates = scratch.take(l.B * 4 * l.H);
  const int64_t packed = scratch.take(r.in(1).constant ? 0 : recurrent.packed());
  const int64_t h = scratch.take_unwanted(r, 1, l.states());
  const int64_t c = scratch.take_unwanted(r, 2, l.states());
  return make_kernel(
      "DynamicQuantizeLSTM",
      [=](const Args& args) {
        float* memory = static_cast<float*>(args.scratch);
        const Lengths lengths(l, lens ? input<int32_t>(args, 3) : nullptr);
        const Forward f{l,
                        lengths,
                        steps,
                        recurrent,
                        input<float>(args, 0),
                        input<float>(args, 1),
                        input<float>(args, 2),
                        first_h ? input<float>(args, 4) : nullptr,
                        first_c ? input<float>(args, 5) : nullptr,
                        wants_y ? output<float>(args, 0) : nullptr,
                        h < 0 ? output<float>(args, 1) : memory + h,
                        c < 0 ? output<float>(args, 2) : memory + c,
                        memory + whole,
                        memory + gates,
                        memory + packed,
                        packs};
        for (int64_t d = 0; d < l.D; ++d) f.run(d);
      },
      scratch.bytes(sizeof(float)));
}

}  // namespace

static void register_dynamic_lstm(KernelTable& table) {
  table.op("ort::DynamicQuantizeLSTM").add("steps", kF32, usual_lstm(6), dynamic_lstm);
}

const Family<KernelTable> kFamily("cpu", "dynamic_lstm", register_dynamic_lstm);

}  // namespace ort::cpu
