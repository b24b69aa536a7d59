// Windows and filter banks of audio front ends, by their formulas.
#include <cmath>
#include <numbers>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

DType written(const OpCall& c) {
  const int64_t dtype = c.attrs().i("output_datatype");
  check(dtype > 0 && dtype < kDTypes && (bit(static_cast<DType>(dtype)) & kNumeric) != 0,
        "attribute 'output_datatype' is {}, expected a dtype of numbers", dtype);
  return static_cast<DType>(dtype);
}

Value counted(Graph& g, const Dim& size) {
  return cast(positions(g, size), DType::f64);
}

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), N one less where the window is not periodic.
Definition cosines(double a0, double a1, double a2) {
  return [=](const OpCall& c) -> Outputs {
    Graph& g = c.graph();
    const Dim size = number_in(c, 0, "size");
    const Dim period = c.attrs().i("periodic") ? size : max(size - 1, 1);
    const Value turn = counted(g, size) * (2 * std::numbers::pi) / cast(g.size(period), DType::f64);
    Value window = a0 - a1 * cos(turn);
    if (a2 != 0.0) window = window + a2 * cos(2.0 * turn);
    // Alone and not periodic it divides by zero: 1, as torch has it.
    const Value one = cast(g.size(1), DType::f64);
    if (!c.attrs().i("periodic") && size.value().value_or(1) == 1)
      window = where(equal(cast(g.size(size), DType::f64), one), one, window);
    return {cast(window, written(c))};
  };
}

void window(OpSet& ops, std::string_view name, double a0, double a1, double a2) {
  ops.op(name)
      .in("size", kIndex, "I")
      .host()
      .out("output", kNumeric, "O")
      .dtype_by("output_datatype")
      .since(17)
      .attr("output_datatype", int64_t{1})
      .attr("periodic", int64_t{1})
      .not_differentiable()
      .defined_as(cosines(a0, a1, a2));
}

// In hertz of mel: O'Shaughnessy 1987, Speech communication, p. 150.
constexpr double kMel = 2595.0, kHertz = 700.0;

Value in_mel(Value hertz) {
  return kMel / std::log(10.0) * log(1.0 + cast(hertz, DType::f64) / kHertz);
}

// Column i rises from edge i to edge i + 1, where it is 1, and falls to edge i + 2. [bins, bands]
Value mel_weights(const OpCall& c) {
  Graph& g = c.graph();
  const Dim bands = number_in(c, 0, "[MelWeightMatrix] num_mel_bins"),
            length = number_in(c, 1, "[MelWeightMatrix] dft_length");
  const Value low = in_mel(c.x(3)),
              step = (in_mel(c.x(4)) - low) / cast(g.size(bands + 2), DType::f64);
  const Value mel = counted(g, bands + 2) * step + low;
  const Value hertz = kHertz * (exp(mel * (std::log(10.0) / kMel)) - 1.0);
  const Value edges =
      unary("Floor", hertz * cast(g.size(length + 1), DType::f64) / cast(c.x(2), DType::f64));
  const auto edge = [&](int64_t i) { return slice(edges, 0, i, bands + i); };
  const Value left = edge(0), center = edge(1), right = edge(2);
  const Value bin = unsqueeze(counted(g, floor_div(length, 2) + 1), {1});
  const Value rises = logical_and(bin >= 0.0, logical_and(logical_not(bin < left), bin < center));
  const Value falls = logical_and(bin > center, bin < right);
  const Value none = number(0.0, bin), one = number(1.0, bin);
  const Value up = (bin - left) / where(center > left, center - left, one);
  const Value down = (right - bin) / where(right > center, right - center, one);
  const Value weights = where(rises, up, where(falls, down, where(equal(bin, center), one, none)));
  return cast(weights, written(c));
}

}  // namespace

static void register_windows(OpSet& ops) {
  window(ops, "HannWindow", 0.5, 0.5, 0.0);
  window(ops, "HammingWindow", 25.0 / 46.0, 21.0 / 46.0, 0.0);
  window(ops, "BlackmanWindow", 0.42, 0.5, 0.08);
  ops.op("MelWeightMatrix")
      .in("num_mel_bins", kIndex, "I")
      .host()
      .in("dft_length", kIndex, "I")
      .host()
      .in("sample_rate", kIndex, "I")
      .in("lower_edge_hertz", kFloating, "F")
      .in("upper_edge_hertz", kFloating, "F")
      .out("output", kNumeric, "O")
      .dtype_by("output_datatype")
      .since(17)
      .attr("output_datatype", int64_t{1})
      .not_differentiable()
      .defined_as(mel_weights);
}

const Family<OpSet> kWindowsOps("ops", "windows", register_windows);

}  // namespace ort
