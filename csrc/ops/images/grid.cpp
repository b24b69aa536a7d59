// Where an image is sampled, and windows in its middle.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

Dims sizes_in(const OpCall& c, size_t input, std::string_view op) {
  const auto known = c.graph().contents(c.x(input).id);
  check(known.has_value(), "[{}] input {} has shape {}, expected a list of sizes", op, input,
        c.x(input).dims());
  return *known;
}

// -1 to 1 in `size` steps: the outermost at the ends, or half a step from them.
Value spread(Graph& g, const Dim& size, bool align_corners, DType dtype) {
  const Value places = cast(positions(g, size), dtype);
  if (!align_corners) return (2.0 * places + 1.0) / cast(g.size(size), dtype) - 1.0;
  if (size == Dim(1)) return 0.0 * places;
  return 2.0 * places / cast(g.size(size - 1), dtype) - 1.0;
}

// theta [N, 2, 3] over (x, y, 1) or [N, 3, 4] over (x, y, z, 1): as
// torch.nn.functional.affine_grid.
Value affine_grid(const OpCall& c) {
  Graph& g = c.graph();
  const Dims size = sizes_in(c, 1, "AffineGrid"), t = c.x(0).dims();
  const size_t n = size.size() - 2;
  const auto is = [&](size_t axis, size_t count) {
    return t[axis].value().value_or(static_cast<int64_t>(count)) == static_cast<int64_t>(count);
  };
  check((size.size() == 4 || size.size() == 5) && t.size() == 3 && is(1, n) && is(2, n + 1),
        "[AffineGrid] theta has shape {} and size {} numbers, expected [N, 2, 3] and 4, or "
        "[N, 3, 4] and 5",
        t, size.size());
  const bool align = c.attrs().i("align_corners") != 0;
  const Value theta = widen(c.x(0), DType::f32);
  Dims column(n + 2, Dim(1));
  column.front() = size[0];
  column.back() = static_cast<int64_t>(n);
  const auto term = [&](size_t k) {
    return reshape(slice(theta, 2, static_cast<int64_t>(k), static_cast<int64_t>(k) + 1), column);
  };
  Value grid = term(n);
  for (size_t k = 0; k < n; ++k) {  // x is the last axis of the image
    Dims along(n + 2, Dim(1));
    along[n - k] = size[1 + n - k];
    grid = grid + term(k) * reshape(spread(g, size[1 + n - k], align, theta.dtype()), along);
  }
  return cast(grid, c.x(0).dtype());
}

// Cut to the middle where it is too long, zeros on both sides where it is too short; what is odd
// goes to the end.
Value center_crop_pad(const OpCall& c) {
  Value x = c.x(0);
  const Dims shape = sizes_in(c, 1, "CenterCropPad");
  const int64_t rank = x.rank();
  std::vector<int64_t> axes;
  if (c.attrs().has("axes"))
    axes = c.attrs().ints("axes");
  else
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  check(axes.size() == shape.size(), "[CenterCropPad] shape has {} numbers for {} axes",
        shape.size(), axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    check(axes[i] >= -rank && axes[i] < rank,
          "[CenterCropPad] axis {} does not exist, x has rank {}", axes[i], rank);
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    const Dim size = x.dim(axis), kept = min(size, shape[i]);
    if (kept != size) {
      const Dim start = max(floor_div(size - shape[i], 2), 0);
      x = slice(x, axis, start, start + kept);
    }
    if (kept != shape[i]) {
      const Dim before = max(floor_div(shape[i] - size, 2), 0);
      x = pad_axis(x, axis, before, shape[i] - kept - before);
    }
  }
  return x;
}

}  // namespace

static void register_grid(OpSet& ops) {
  ops.op("AffineGrid")
      .in("theta", kFloating)
      .in("size", kInt64, "S")
      .host()
      .out("grid")
      .since(20)
      .attr("align_corners", int64_t{0})
      .differentiable_inputs({0})
      .defined_as(affine_grid);
  ops.op("CenterCropPad")
      .in("input_data")
      .in("shape", kIndex, "S")
      .host()
      .out("output_data")
      .since(18)
      .attr_optional("axes")
      .differentiable_inputs({0})
      .defined_as(center_crop_pad);
}

const Family<OpSet> kGridOps("ops", "grid", register_grid);

}  // namespace ort
