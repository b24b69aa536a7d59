// Pooling over regions of interest, and the gradients.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr int64_t kMostPooled = 1 << 14, kMostSamples = 1 << 10;

void expect_size(const InferContext& c, std::string_view name, int64_t size) {
  c.require(size > 0 && size <= kMostPooled, "{} is {}, expected 1 to {}", name, size, kMostPooled);
}

// X [N, C, H, W] and rois [R, columns] give [R, C, height, width].
Dims pooled(InferContext& c, const Dims& x, size_t rois, int64_t columns, int64_t height,
            int64_t width) {
  const Dims& r = c.dims(rois);
  c.require(x.size() == 4, "X has shape {}, expected [N, C, H, W]", x);
  c.require(r.size() == 2 && r[1].value().value_or(columns) == columns,
            "rois has shape {}, expected [R, {}]", r, columns);
  c.assume_equal({r[1]}, {Dim(columns)}, "numbers of a region");
  return {r[0], x[1], height, width};
}

Dims aligned(InferContext& c, const Dims& x, size_t rois, size_t indices) {
  const Attrs& attrs = c.attrs();
  const std::string &mode = attrs.s("mode"), &way = attrs.s("coordinate_transformation_mode");
  c.require(mode == "avg" || mode == "max", "attribute 'mode' is '{}', expected avg or max", mode);
  c.require(way == "half_pixel" || way == "output_half_pixel",
            "attribute 'coordinate_transformation_mode' is '{}', expected half_pixel or "
            "output_half_pixel",
            way);
  const int64_t height = attrs.i("output_height"), width = attrs.i("output_width"),
                samples = attrs.i("sampling_ratio");
  expect_size(c, "output_height", height);
  expect_size(c, "output_width", width);
  c.require(samples >= 0 && samples <= kMostSamples, "sampling_ratio is {}, expected 0 to {}",
            samples, kMostSamples);
  expect_dims(c, indices, {c.dims(rois)[0]});
  return pooled(c, x, rois, 4, height, width);
}

Dims max_pooled(InferContext& c, const Dims& x, size_t rois) {
  const auto& size = c.attrs().ints("pooled_shape");
  c.require(size.size() == 2, "pooled_shape has {} numbers, expected 2", size.size());
  for (const int64_t one : size) expect_size(c, "pooled_shape", one);
  return pooled(c, x, rois, 5, size[0], size[1]);
}

void infer_align(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  c.require(c.rank(1) == 2, "rois has shape {}, expected [R, 4]", c.dims(1));
  c.out(0, c.dtype(), aligned(c, c.dims(0), 1, 2));
}

void infer_align_grad(InferContext& c) {
  dims_attr(0)(c);
  if (!c.ranked(0) || !c.ranked(1)) return;
  c.require(c.rank(1) == 2, "rois has shape {}, expected [R, 4]", c.dims(1));
  const Dims& dims = std::get<Dims>(*c.attrs().find("dims"));
  c.require(c.has(3) == (c.attrs().s("mode") == "max"), "X is there for mode max alone");
  expect_dims(c, 0, aligned(c, dims, 1, 2));
  expect_dims(c, 3, dims);
}

void infer_max_pool(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  c.out(0, c.dtype(), max_pooled(c, c.dims(0), 1));
}

void infer_max_pool_grad(InferContext& c) {
  same_dims(c, 0, 1);
  if (c.ranked(0) && c.ranked(1) && c.ranked(2)) expect_dims(c, 0, max_pooled(c, c.dims(1), 2));
}

OpSchema& align(OpSchema& schema) {
  return schema.attr("coordinate_transformation_mode", std::string("half_pixel"))
      .attr("mode", std::string("avg"))
      .attr("output_height", int64_t{1})
      .attr("output_width", int64_t{1})
      .attr("sampling_ratio", int64_t{0})
      .attr("spatial_scale", 1.0)
      .computes_in(DType::f32);
}

OpSchema& max_pool(OpSchema& schema) {
  return schema.attr_required("pooled_shape").attr("spatial_scale", 1.0).computes_in(DType::f32);
}

}  // namespace

static void register_roi(OpSet& ops) {
  align(ops.op("RoiAlign")
            .in("X", kFloating)
            .in("rois", kFloating)
            .in("batch_indices", kInt64, "I")
            .out("Y")
            .since(16))
      .differentiable_inputs({0})
      .shape(infer_align)
      .gradient([](const Backward& b) {
        Attrs attrs = b.attrs();
        attrs.set("dims", b.x().dims());
        const Value x = b.attrs().s("mode") == "max" ? b.x() : Value{};
        return b.graph().emit1("ort::RoiAlignGrad", {b.dy(), b.x(1), b.x(2), x}, std::move(attrs));
      });
  // dX of shape `dims`.
  align(ops.op("ort::RoiAlignGrad")
            .in("dY", kFloating)
            .in("rois", kFloating)
            .in("batch_indices", kInt64, "I")
            .in_optional("X", kFloating)
            .out("dX")
            .attr_required("dims"))
      .shape(infer_align_grad);
  max_pool(ops.op("MaxRoiPool").in("X", kFloating).in("rois", kFloating).out("Y").since(1))
      .differentiable_inputs({0})
      .shape(infer_max_pool)
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::MaxRoiPoolGrad", {b.dy(), b.x(0), b.x(1)}, b.attrs());
      });
  max_pool(ops.op("ort::MaxRoiPoolGrad")
               .in("dY", kFloating)
               .in("X", kFloating)
               .in("rois", kFloating)
               .out("dX"))
      .shape(infer_max_pool_grad);
}

const Family<OpSet> kRoiOps("ops", "roi", register_roi);

}  // namespace ort
