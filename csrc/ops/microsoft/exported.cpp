// What old exporters of torch's and of TensorFlow's write, by ops of ai.onnx.
#include "csrc/ops/ops.h"

namespace ort::microsoft {
namespace {

constexpr TypeSet kWide = bit(DType::f32) | bit(DType::f64) | bit(DType::f16);

// --- Inverse -------------------------------------------------------------------------------------

// By cofactors, in float64: a determinant is soon too large or too small for others.
Value inverse(Value x) {
  const Value wide = cast(x, DType::f64);
  const Value cofactors = x.graph->emit1("ort::Cofactors", {wide});
  return cast(swap_last(cofactors) / unsqueeze(x.graph->emit1("Det", {wide}), {-2, -1}), x.dtype());
}

Value inverse_gradient(const Backward& b) {
  const Value y = swap_last(b.y());
  return -matmul(matmul(y, b.dy()), y);
}

// --- ConvTransposeWithDynamicPads ----------------------------------------------------------------

// Pads cut off what a product without them gives.
Value conv_with_pads(const OpCall& c) {
  Value y = c.graph().emit1("ConvTranspose", {c.x(0), c.x(1), c.x(3)}, c.attrs());
  if (!c.has(2) || c.attrs().s("auto_pad") != "NOTSET") return y;
  const auto& pads = c.graph().contents(c.x(2).id);
  const int64_t axes = y.rank() - 2;
  check(pads.has_value(), "Pads are not known before it is run");
  check(static_cast<int64_t>(pads->size()) == 2 * axes, "it has {} Pads, expected two of each axis",
        pads->size());
  for (int64_t axis = 0; axis < axes; ++axis) {
    const Dim begin = (*pads)[static_cast<size_t>(axis)];
    const Dim end = (*pads)[static_cast<size_t>(axes + axis)];
    const bool inner = begin.value().value_or(0) >= 0 && end.value().value_or(0) >= 0;
    check(inner, "Pads are {}, expected none below 0", *pads);
    y = slice(y, axis + 2, begin, y.dim(axis + 2) - end);
  }
  return y;
}

// --- CropAndResize -------------------------------------------------------------------------------

// Where `count` positions from the first to the last of each region [R] lie among a size of X's, or
// one in the middle of them: [R, count].
Value evenly_spaced(Value first, Value last, const Dim& count, Value size) {
  Graph& g = *first.graph;
  const Value from = unsqueeze(first * size, {1}), to = unsqueeze(last * size, {1});
  const Value steps = cast(g.size(count), first.dtype()) - 1.0, one = number(1.0, steps);
  const Value part = cast(positions(g, count), first.dtype()) / maximum(steps, one);
  const Value middle = number(0.5, steps);
  return from + (to - from) * unsqueeze(where(steps < 1.0, middle, part), {0});
}

struct Crop {
  Value y, x;  // [R, h, w], in elements of X
  Value inside;

  Crop(Value image, Value regions, const Dim& height, const Dim& width) {
    const Dims dims{regions.dim(0), height, width};
    const auto column = [&](int64_t k) { return squeeze(slice(regions, 1, k, k + 1), {1}); };
    const auto last = [&](int64_t axis) {
      return cast(image.graph->size(image.dim(axis)), regions.dtype()) - 1.0;
    };
    y = expand(unsqueeze(evenly_spaced(column(0), column(2), height, last(2)), {2}), dims);
    x = expand(unsqueeze(evenly_spaced(column(1), column(3), width, last(3)), {1}), dims);
    inside = logical_and(is_within(y, last(2)), is_within(x, last(3)));
  }

  static Value is_within(Value at, Value last) {
    return equal(at, minimum(maximum(at, number(0.0, at)), last));
  }
};

// As GridSample with align_corners has it: from -1 to 1.
Value normal(Value at, Value image, int64_t axis) {
  const Value last = cast(image.graph->size(image.dim(axis)), at.dtype()) - 1.0;
  return unsqueeze(at * 2.0 / maximum(last, number(1.0, last)) - 1.0, {-1});
}

Value crop_and_resize(const OpCall& c) {
  const std::string& mode = c.attrs().s("mode");
  check(mode == "bilinear" || mode == "nearest", "mode is '{}', expected bilinear or nearest",
        mode);
  const Value image = c.x(0), regions = c.x(1);
  check(image.rank() == 4, "X has shape {}, expected [N, C, H, W]", image.dims());
  check(regions.rank() == 2 && may_be_equal(regions.dim(1), 4),
        "rois have shape {}, expected [R, 4]", regions.dims());
  const auto& size = c.graph().contents(c.x(3).id);
  check(size.has_value(), "crop_size is not known before it is run");
  check(size->size() == 2, "crop_size has {} numbers, expected 2", size->size());
  const Dim &height = (*size)[0], &width = (*size)[1];
  check(height.value().value_or(1) > 0 && width.value().value_or(1) > 0,
        "crop_size is {}, expected more than 0", *size);
  const Crop crop(image, regions, height, width);
  const auto at = [&](Value place) {
    return mode == "nearest" ? unary("Floor", place + 0.5) : place;
  };
  const Value grid = concat({normal(at(crop.x), image, 3), normal(at(crop.y), image, 2)}, 3);
  const Value images = c.graph().emit1("Gather", {image, c.x(2)}, {{"axis", int64_t{0}}});
  const Value y = c.graph().emit1("GridSample", {images, grid},
                                  {{"mode", std::string(mode == "nearest" ? "nearest" : "linear")},
                                   {"padding_mode", std::string("border")},
                                   {"align_corners", int64_t{1}}});
  return where(unsqueeze(crop.inside, {1}), y, number(c.attrs().f("extrapolation_value"), y));
}

}  // namespace

static void register_exported(OpSet& ops) {
  ops.op("com.microsoft::Inverse")
      .in("X", kWide)
      .out("Y")
      .defined_as([](Value x) { return inverse(x); })
      .gradient(inverse_gradient);
  OpSchema& conv = ops.op("com.microsoft::ConvTransposeWithDynamicPads")
                       .in("X", kWide)
                       .in("W", kWide)
                       .in_optional("Pads", kInt64, "P")
                       .host()
                       .in_optional("B", kWide)
                       .out("Y")
                       .attr("auto_pad", std::string("NOTSET"))
                       .attr("group", int64_t{1})
                       .defined_as(conv_with_pads);
  for (const char* name : {"dilations", "kernel_shape", "output_padding", "strides"})
    conv.attr_optional(name);
  ops.op("com.microsoft::CropAndResize")
      .in("X", kWide)
      .in("rois", kWide)
      .in("batch_indices", bit(DType::i32), "I")
      .in("crop_size", bit(DType::i32), "I")
      .host()
      .out("Y")
      .attr("mode", std::string("bilinear"))
      .attr("extrapolation_value", 0.0)
      .defined_as(crop_and_resize);
}

const Family<OpSet> kExportedOps("ops", "microsoft_exported", register_exported);

}  // namespace ort::microsoft
