// Discrete Fourier transforms of whole signals and of frames.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr size_t kLength = 1, kAxis = 2;  // inputs of DFT

struct Way {
  bool inverse, onesided;
  explicit Way(const Attrs& attrs)
      : inverse(attrs.i("inverse") != 0), onesided(attrs.i("onesided") != 0) {}
  bool makes_real() const { return inverse && onesided; }
};

// The transform's axis, -2 where none is given; nullopt where only a run tells.
std::optional<size_t> axis_of(const InferContext& c) {
  int64_t axis = -2;
  if (c.has(kAxis)) {
    const auto given = c.ints(kAxis);
    if (!given) return std::nullopt;
    c.require(given->size() == 1, "axis has {} numbers, expected one", given->size());
    axis = given->front();
  }
  const auto found = static_cast<size_t>(c.axis(axis, c.rank()));
  c.require(found + 1 < c.dims().size(), "axis {} is the one of real and imaginary parts", axis);
  return found;
}

Dim length_of(InferContext& c, const Way& way, const Dim& size) {
  if (!c.has(kLength)) return way.makes_real() ? (size - 1) * 2 : size;
  const auto given = c.contents(kLength);
  if (!given) return c.fresh();
  c.require(given->size() == 1, "dft_length has {} numbers, expected one", given->size());
  return given->front();
}

void infer_dft(InferContext& c) {
  const Way way(c.attrs());
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims = c.dims();
  c.require(dims.size() >= 2, "input has shape {}, expected [.., N, 1] or [.., N, 2]", dims);
  const std::optional<int64_t> parts = dims.back().value();
  c.require(!parts || *parts == 1 || *parts == 2,
            "input has shape {}, expected a last axis of 1 or 2", dims);
  if (way.onesided)
    c.require(!parts || *parts == (way.inverse ? 2 : 1),
              "onesided is 1 and inverse {}, input has shape {}, expected a last axis of {}",
              way.inverse ? 1 : 0, dims, way.inverse ? 2 : 1);
  const std::optional<size_t> axis = axis_of(c);
  if (axis) {
    const Dim length = length_of(c, way, dims[*axis]);
    c.require(length.value().value_or(1) > 0, "the length is {}, expected a positive one", length);
    c.assume(at_least(length, 1), "length");
    dims[*axis] = way.onesided && !way.inverse ? floor_div(length, 2) + 1 : length;
  } else {
    for (Dim& dim : dims) dim = c.fresh();
  }
  dims.back() = way.makes_real() ? 1 : 2;
  c.out(0, c.dtype(), std::move(dims));
}

Value dft(Value x, Value axis, bool inverse, bool onesided, const Dim* length = nullptr) {
  Attrs attrs;
  attrs.set("inverse", int64_t{inverse});
  attrs.set("onesided", int64_t{onesided});
  Graph& g = *x.graph;
  return g.emit1("DFT", {x, length ? g.size(*length) : Value{}, axis}, std::move(attrs));
}

// For each bin of half a spectrum how often it stands in the whole one, divided by `length`: the
// first and the middle one once, the others twice, as they have a mirror image. With `after` axes
// of size 1 behind the bins.
Value mirrored(Graph& g, const Dim& bins, const Dim& length, int64_t after, DType dtype) {
  const Value bin = positions(g, bins), one = g.scalar(1, DType::i64);
  const Value twice = g.emit1("Add", {bin, bin});
  const Value alone =
      g.emit1("Or", {equal(bin, g.scalar(0, DType::i64)), equal(twice, g.size(length))});
  const Value times = where(alone, one, g.scalar(2, DType::i64));
  Dims column(static_cast<size_t>(after) + 1, Dim(1));
  column[0] = bins;
  return reshape(cast(times, dtype) / cast(g.size(length), dtype), column);
}

int64_t known_axis(const Backward& b) {
  const int64_t rank = b.x(0).rank();
  if (!b.has(kAxis)) return rank - 2;
  const auto given = b.graph().contents(b.x(kAxis).id);
  check(given && given->front().value(), "[DFT] axis is not known, which its gradient needs");
  const int64_t axis = *given->front().value();
  return axis < 0 ? axis + rank : axis;
}

// How many numbers are transformed: y has as many, unless it is half a spectrum.
Dim known_length(const Backward& b, const Way& way, int64_t axis) {
  if (!way.onesided || way.inverse) return b.y(0).dim(axis);
  if (!b.has(kLength)) return b.x(0).dim(axis);
  const auto given = b.graph().contents(b.x(kLength).id);
  check(given.has_value(), "[DFT] dft_length is not known, which its gradient needs");
  return given->front();
}

// A gradient for x, cut or filled with zeros to `size` along the axis, as x was for the transform.
Value fitted(Value dx, int64_t axis, const Dim& size) {
  const Dim have = dx.dim(axis), kept = min(have, size);
  if (kept != have) dx = slice(dx, axis, 0, kept);
  return kept == size ? dx : pad_axis(dx, axis, 0, size - kept);
}

// DFT is linear: its transpose is the transform back, without its 1 / N or with one.
Value dft_gradient(const Backward& b) {
  const Way way(b.attrs());
  const Value x = b.x(0), given_axis = b.x(kAxis);
  Graph& g = b.graph();
  const int64_t axis = known_axis(b);
  const Dim length = known_length(b, way, axis);
  const Value scale = cast(g.size(length), x.dtype());
  Value dx;
  if (way.makes_real()) {
    const Dim bins = floor_div(length, 2) + 1;
    dx = dft(b.dy(), given_axis, false, true) *
         mirrored(g, bins, length, x.rank() - 1 - axis, x.dtype());
  } else if (way.inverse) {
    dx = dft(b.dy(), given_axis, false, false) / scale;
  } else {  // of half a spectrum the rest counts as zeros
    dx = dft(b.dy(), given_axis, true, false, &length) * scale;
  }
  if (x.dim(-1) != dx.dim(-1)) dx = slice(dx, x.rank() - 1, 0, x.dim(-1));  // of real numbers
  return fitted(dx, axis, x.dim(axis));
}

double dft_cost(const Sized& c) {
  constexpr double kEach = 20;  // of a transform of a thousand
  return kEach * (c.x(0) + c.y());
}

// signal [B, L, 1 or 2] to [B, frames, bins, 2]: frames that lie `frame_step` apart, each by the
// window.
Value stft(const OpCall& c) {
  Graph& g = c.graph();
  // torch's exporter writes real signals without the axis of one number.
  const Value signal = c.x(0).rank() == 2 ? unsqueeze(c.x(0), {2}) : c.x(0);
  check(signal.rank() == 3, "[STFT] signal has shape {}, expected [B, L], [B, L, 1] or [B, L, 2]",
        signal.dims());
  const Dims window = c.has(2) ? c.x(2).dims() : Dims{Dim(1)};
  check(window.size() == 1, "[STFT] window has shape {}, expected one axis", window);
  const Dim step = number_in(c, 1, "[STFT] frame_step");
  const Dim size = c.has(3)   ? number_in(c, 3, "[STFT] frame_length")
                   : c.has(2) ? window[0]
                              : signal.dim(1);
  check(!c.has(2) || may_be_equal(window[0], size), "[STFT] window has {} numbers, a frame {}",
        window[0], size);
  check(step.value().value_or(1) > 0 && size.value().value_or(1) > 0,
        "[STFT] frame_step is {} and a frame has {} numbers, expected positive ones", step, size);
  const std::optional<int64_t> length = signal.dim(1).value(), frame = size.value();
  check(!length || !frame || *frame <= *length, "[STFT] a frame has {} numbers, the signal {}",
        size, signal.dim(1));
  const Dim frames = floor_div(signal.dim(1) - size, step) + 1;
  const Value starts = unsqueeze(positions(g, frames) * g.size(step), {1});
  Value framed = g.emit1("Gather", {signal, starts + positions(g, size)}, {{"axis", int64_t{1}}});
  if (c.has(2)) framed = framed * unsqueeze(c.x(2), {1});
  return dft(framed, Value{}, false, c.attrs().i("onesided") != 0);
}

}  // namespace

static void register_fourier(OpSet& ops) {
  ops.op("DFT")
      .in("input", kFloating)
      .in_optional("dft_length", kIndex, "L")
      .host()
      .in_optional("axis", kInt64, "A")
      .host()
      .out("output")
      .since(20)
      .attr("inverse", int64_t{0})
      .attr("onesided", int64_t{0})
      .cost(dft_cost)
      .computes_in(DType::f32)
      .differentiable_inputs({0})
      .shape(infer_dft)
      .gradient(dft_gradient);
  ops.op("STFT")
      .in("signal", kFloating)
      .in("frame_step", kIndex, "S")
      .host()
      .in_optional("window", kFloating)
      .in_optional("frame_length", kIndex, "S")
      .host()
      .out("output")
      .since(17)
      .attr("onesided", int64_t{1})
      .differentiable_inputs({0, 2})
      .defined_as(stft);
}

const Family<OpSet> kFourierOps("ops", "fourier", register_fourier);

}  // namespace ort
