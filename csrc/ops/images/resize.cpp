// Resampling over a grid: Resize and its gradient.
#include <algorithm>
#include <cmath>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr size_t kRoi = 1, kScales = 2, kSizes = 3;  // inputs

// An optional list; an empty one counts as none, as files of opset 11 have it.
bool given(const InferContext& c, size_t i) {
  return c.has(i) && !(c.ranked(i) && c.rank(i) == 1 && c.dims(i)[0].is(0));
}

void expect_word(const InferContext& c, std::string_view name,
                 const std::vector<std::string>& words) {
  const std::string& word = c.attrs().s(name);
  std::string known;
  for (const std::string& other : words) known += (known.empty() ? "" : ", ") + other;
  c.require(std::find(words.begin(), words.end(), word) != words.end(),
            "attribute '{}' is '{}', expected one of {}", name, word, known);
}

void expect_words(const InferContext& c) {
  expect_word(c, "mode", {"nearest", "linear", "cubic"});
  expect_word(c, "nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  expect_word(c, "keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  expect_word(c, "coordinate_transformation_mode",
              {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"});
}

// Whether it reads roi.
bool crops(const InferContext& c) {
  return c.attrs().s("coordinate_transformation_mode") == "tf_crop_and_resize";
}

// The axes that the lists are about.
std::vector<size_t> axes_of(const InferContext& c, size_t rank) {
  std::vector<size_t> axes;
  if (!c.attrs().has("axes")) {
    for (size_t i = 0; i < rank; ++i) axes.push_back(i);
    return axes;
  }
  for (const int64_t axis : c.attrs().ints("axes"))
    axes.push_back(static_cast<size_t>(c.axis(axis, static_cast<int64_t>(rank))));
  std::vector<size_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  c.require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
            "axes {} name an axis twice", c.attrs().ints("axes"));
  return axes;
}

void expect_length(InferContext& c, size_t input, size_t length) {
  if (!given(c, input) || !c.ranked(input)) return;
  c.require(c.rank(input) == 1 &&
                (!c.dims(input)[0].value() || c.dims(input)[0].is(static_cast<int64_t>(length))),
            "{} has shape {}, expected [{}]", c.node().schema->inputs()[input].name, c.dims(input),
            length);
}

// The fraction of the smallest denominator that is this number in float32.
std::pair<int64_t, int64_t> fraction_of(float number) {
  constexpr double kMost = 1 << 24;
  int64_t before[2] = {0, 1}, last[2] = {1, 0};  // continued fractions
  double rest = static_cast<double>(number);
  for (;;) {
    const double whole = std::floor(rest);
    const double p = whole * static_cast<double>(last[0]) + static_cast<double>(before[0]),
                 q = whole * static_cast<double>(last[1]) + static_cast<double>(before[1]);
    if (last[1] > 0 && (p > kMost || q > kMost)) return {last[0], last[1]};
    std::copy(last, last + 2, before);
    last[0] = static_cast<int64_t>(p), last[1] = static_cast<int64_t>(q);
    if (static_cast<float>(p / q) == number || rest == whole) return {last[0], last[1]};
    rest = 1 / (rest - whole);
  }
}

// floor(size * scale). Of numbers it is the product in float32, as onnx's own inference and
// onnxruntime have it: ten times 0.7 is 7, which float32 cannot say. The extent of the roi that
// ONNX's text multiplies by is left out, as in both of these.
Dim scaled(const Dim& size, float scale) {
  if (const auto number = size.value())
    return static_cast<int64_t>(std::floor(static_cast<float>(*number) * scale));
  const auto [p, q] = fraction_of(scale);
  return floor_div(size * p, q);
}

void size_by_scales(InferContext& c, const std::vector<size_t>& axes, Dims& dims) {
  const Tensor* scales = constant_of(c.in(kScales));
  if (!scales) {
    for (const size_t axis : axes) dims[axis] = c.fresh();
    return;
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const double scale = element_as_double(*scales, static_cast<int64_t>(i));
    const double size = static_cast<double>(dims[axes[i]].value().value_or(1));
    c.require(scale > 0 && scale * std::max(size, 1.0) < INT32_MAX,
              "scale {} of axis {} is out of range", scale, axes[i]);
    dims[axes[i]] = scaled(dims[axes[i]], static_cast<float>(scale));
  }
}

// round(scale * size), half a step up, of the smallest or the largest scale that sizes[i] is of an
// axis: rounding keeps their order, so each is rounded first.
Dim at_aspect(const Dim& size, const Dims& x, const Dims& sizes, bool smallest) {
  Dim made;
  for (size_t i = 0; i < x.size(); ++i) {
    const Dim one = floor_div(sizes[i] * size * 2 + x[i], x[i] * 2);
    made = i == 0 ? one : smallest ? min(made, one) : max(made, one);
  }
  return made;
}

void size_by_sizes(InferContext& c, const std::vector<size_t>& axes, Dims& dims) {
  const auto sizes = c.contents(kSizes);
  if (!sizes) {
    for (const size_t axis : axes) dims[axis] = c.fresh();
    return;
  }
  const std::string& policy = c.attrs().s("keep_aspect_ratio_policy");
  Dims x;
  for (const size_t axis : axes) x.push_back(dims[axis]);
  for (size_t i = 0; i < axes.size(); ++i) {
    c.require((*sizes)[i].value().value_or(0) >= 0, "sizes {} has a negative size", *sizes);
    c.assume(at_least((*sizes)[i], 0), "size");
    if (policy == "stretch") {
      dims[axes[i]] = (*sizes)[i];
      continue;
    }
    for (const Dim& size : x) {
      c.require(!size.is(0), "an axis of x has size 0: it has no aspect ratio");
      c.assume(at_least(size, 1), "size that a ratio is of");
    }
    dims[axes[i]] = at_aspect(x[i], x, *sizes, policy == "not_larger");
  }
}

// What is made of x with these sizes.
Dims resized(InferContext& c, Dims dims) {
  const std::vector<size_t> axes = axes_of(c, dims.size());
  if (crops(c)) expect_length(c, kRoi, 2 * axes.size());
  expect_length(c, kScales, axes.size());
  expect_length(c, kSizes, axes.size());
  const Attr* torch = c.attrs().find("torch_scales");
  const auto* factors = torch ? std::get_if<std::vector<double>>(torch) : nullptr;
  c.require(!torch || (factors && factors->size() >= axes.size()),
            "torch_scales is {}, expected a float for each of {} axes",
            torch ? attr_text(*torch) : "", axes.size());
  given(c, kScales) ? size_by_scales(c, axes, dims) : size_by_sizes(c, axes, dims);
  return dims;
}

void expect_lists(const InferContext& c) {
  const bool scales = given(c, kScales), sizes = given(c, kSizes);
  c.require(scales != sizes, "it has {} of scales and sizes, expected one",
            scales ? "both" : "none");
  c.require(!crops(c) || given(c, kRoi), "tf_crop_and_resize has no roi");
}

void infer_resize(InferContext& c) {
  expect_words(c);
  expect_lists(c);
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  c.out(0, c.dtype(), resized(c, c.dims()));
}

// dy is as large as what Resize makes of attribute "dims", where that is known before the run.
void infer_resize_grad(InferContext& c) {
  expect_words(c);
  expect_lists(c);
  dims_attr(0)(c);
  if (!c.ranked(0)) return;
  const Dims& dims = std::get<Dims>(*c.attrs().find("dims"));
  c.require(c.rank() == static_cast<int64_t>(dims.size()), "dy has shape {}, dims are {}", c.dims(),
            dims);
  const bool known =
      c.has(kScales) ? constant_of(c.in(kScales)) != nullptr : c.contents(kSizes).has_value();
  if (known) c.assume_equal(c.dims(), resized(c, dims), "sizes of dy");
}

// What Resize and its gradient have alike, after the first input.
OpSchema& resize(OpSchema& schema) {
  return schema.in_optional("roi", kFloating, "R")
      .host()
      .in_optional("scales", bit(DType::f32), "S")
      .host()
      .in_optional("sizes", kInt64, "I")
      .host()
      .attr("antialias", int64_t{0})
      .attr_optional("axes")
      .attr("coordinate_transformation_mode", std::string("half_pixel"))
      .attr("cubic_coeff_a", -0.75)
      .attr("exclude_outside", int64_t{0})
      .attr("extrapolation_value", 0.0)
      .attr("keep_aspect_ratio_policy", std::string("stretch"))
      .attr("mode", std::string("nearest"))
      .attr("nearest_mode", std::string("round_prefer_floor"))
      // By axis the factor that torch was given, 0 where it was given a size: positions are
      // torch's, which come of that factor even where the size was rounded, and in float32.
      .attr_ours("torch_scales")
      .differentiable_inputs({0})
      .computes_in(DType::f32);
}

}  // namespace

static void register_resize(OpSet& ops) {
  resize(ops.op("Resize").in("x").out("y").since(13))
      .shape(infer_resize)
      .gradient([](const Backward& b) {
        Attrs attrs = b.attrs();
        attrs.set("dims", b.x().dims());
        return b.graph().emit1("ort::ResizeGrad", {b.dy(), b.x(1), b.x(2), b.x(3)}, attrs);
      });
  // dx of shape `dims`: Resize is linear, and this is its transpose. Whatever y shows nowhere has
  // 0.
  resize(ops.op("ort::ResizeGrad").in("dy", kFloating).out("dx").attr_required("dims"))
      .shape(infer_resize_grad)
      .gradient([](const Backward& b) {
        Attrs attrs = b.attrs();
        attrs.erase("dims");
        attrs.set("extrapolation_value", 0.0);
        return b.graph().emit1("Resize", {b.dy(), b.x(1), b.x(2), b.x(3)}, attrs);
      });
}

const Family<OpSet> kResizeOps("ops", "resize", register_resize);

}  // namespace ort
