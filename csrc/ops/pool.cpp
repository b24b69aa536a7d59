// Pooling over [N, C, D1..Dn].
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Windows along one axis; in ceil mode a window that starts in the end padding does not count.
Dim window_count(const Dim& size, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                 int64_t after, bool ceil_mode) {
  const Dim reach = Dim(dilation) * (kernel - 1) + 1;
  const Dim span = size + before + after - reach;
  if (!ceil_mode) return floor_div(span, stride) + 1;
  // Whichever bound is the smaller: windows that end in the padding, or that start before its end.
  const bool reaches = *(Dim(after) + stride - reach).value() > 0;
  return floor_div((reaches ? size + before : span + stride) + (stride - 1), stride);
}

void infer_pool(InferContext& c) {
  const bool indices = c.wants(1);
  if (!c.ranked(0)) {
    c.out(0, c.dtype(), std::nullopt);
    return c.out(1, DType::i64, std::nullopt);
  }
  const Dims& x = c.dims(0);
  c.require(x.size() >= 3, "x has shape {}, expected [N, C, D1..]", x);
  const size_t n = x.size() - 2;
  const auto& kernel = c.attrs().ints("kernel_shape");
  const auto strides = ints_or(c.attrs(), "strides", n, 1),
             dilations = ints_or(c.attrs(), "dilations", n, 1);
  const auto pads = ints_or(c.attrs(), "pads", 2 * n, 0);
  c.require(
      kernel.size() == n && strides.size() == n && dilations.size() == n && pads.size() == 2 * n,
      "kernel_shape {}, strides {}, dilations {} and pads {} do not fit {} spatial axes", kernel,
      strides, dilations, pads, n);
  expect_small(c, "kernel_shape", kernel);
  expect_small(c, "strides", strides);
  expect_small(c, "dilations", dilations);
  expect_small(c, "pads", pads);
  const std::string& auto_pad = c.attrs().s("auto_pad");
  Dims dims{x[0], x[1]};
  for (size_t i = 0; i < n; ++i) {
    c.require(kernel[i] > 0 && strides[i] > 0 && dilations[i] > 0,
              "kernel_shape {}, strides {} and dilations {} must be positive", kernel, strides,
              dilations);
    c.require(pads[i] >= 0 && pads[n + i] >= 0, "pads {} has a negative size", pads);
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      // ONNX's text counts dilations into the padding; onnxruntime does not.
      const Dim reach = Dim(dilations[i]) * (kernel[i] - 1) + 1;
      dims.push_back(same_windows(c, x[2 + i], reach, strides[i]));
      continue;
    }
    const bool valid = auto_pad == "VALID", ceil_mode = c.attrs().i("ceil_mode") != 0;
    const Dim padded = x[2 + i] + (valid ? Dim(0) : Dim(pads[i]) + pads[n + i]);
    if (!ceil_mode && strides[i] > 1)
      c.assume(at_least(padded, Dim(dilations[i]) * (kernel[i] - 1) + 1), "padded size");
    dims.push_back(window_count(x[2 + i], kernel[i], strides[i], dilations[i], valid ? 0 : pads[i],
                                valid ? 0 : pads[n + i], ceil_mode));
  }
  c.out(0, c.dtype(), dims);
  if (indices) c.out(1, DType::i64, std::move(dims));
}

// dy's images and channels are those of attribute "dims"; indices have dy's shape.
void infer_pool_grad(InferContext& c) {
  dims_attr(0)(c);
  if (!c.ranked(0)) return;
  const Dims &dy = c.dims(0), &dx = std::get<Dims>(*c.attrs().find("dims"));
  c.require(dy.size() >= 3 && dx.size() == dy.size(), "dy has shape {}, dims are {}", dy, dx);
  c.assume_equal({dy[0], dy[1]}, {dx[0], dx[1]}, "images and channels");
  if (c.has(1)) expect_dims(c, 1, dy);
}

// Those of a MaxPool that counts along columns are made again.
Value row_major_indices(const Backward& b) {
  if (b.attrs().i("storage_order") == 0) return b.y(1);
  Attrs attrs = b.attrs();
  attrs.set("storage_order", int64_t{0});
  return b.graph().emit("MaxPool", std::vector<Value>{b.x()}, std::move(attrs), 2)[1];
}

// Each window is read whole; `windows`: the value that has an element for each.
double pool_cost(const Sized& node, Value windows) {
  double size = 1;
  for (const int64_t axis : node.attrs().ints("kernel_shape")) size *= static_cast<double>(axis);
  return node.elements(windows) * size;
}

OpSchema& pool_attrs(OpSchema& schema) {
  return schema.attr("auto_pad", std::string("NOTSET"))
      .attr("ceil_mode", int64_t{0})
      .attr_required("kernel_shape")
      .attr_optional("strides")
      .attr_optional("dilations")
      .attr_optional("pads");
}

void global_pool(OpSet& ops, std::string_view name, std::string_view reduction) {
  ops.op(name)
      .in("x", kFloating)
      .out("y")
      .since(1)
      .shape([](InferContext& c) {
        if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
        c.require(c.rank(0) >= 2, "x has shape {}, expected [N, C, D1..]", c.dims(0));
        Dims dims = c.dims(0);
        for (size_t i = 2; i < dims.size(); ++i) dims[i] = 1;
        c.out(0, c.dtype(), std::move(dims));
      })
      .defined_as([reduction](const OpCall& c) {
        std::vector<int64_t> axes;
        for (int64_t i = 2; i < c.x().rank(); ++i) axes.push_back(i);
        return reduce(reduction, c.x(), axes, true);
      });
}

}  // namespace

static void register_pool(OpSet& ops) {
  pool_attrs(ops.op("MaxPool").in("x", kNumeric).out("y").out("indices", kInt64, "I").since(8))
      .attr("storage_order", int64_t{0})
      .cost([](const Sized& c) { return pool_cost(c, c.node().output()); })
      .shape(infer_pool)
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::MaxPoolGrad", {b.dy(), row_major_indices(b)},
                               {{"dims", b.x().dims()}});
      });
  // Zeros of shape `dims`; each dy is added at its flat index.
  ops.op("ort::MaxPoolGrad")
      .in("dy", kFloating)
      .in("indices", kInt64, "I")
      .out("dx")
      .attr_required("dims")
      .shape(infer_pool_grad);
  pool_attrs(ops.op("AveragePool").in("x", kFloating).out("y").since(7))
      .cost([](const Sized& c) { return pool_cost(c, c.node().output()); })
      .computes_in(DType::f32)
      .attr("count_include_pad", int64_t{0})
      .shape(infer_pool)
      .gradient([](const Backward& b) {
        Attrs attrs = b.attrs();
        attrs.set("dims", b.x().dims());
        return b.graph().emit1("ort::AveragePoolGrad", {b.dy()}, attrs);
      });
  pool_attrs(ops.op("ort::AveragePoolGrad").in("dy", kFloating).out("dx"))
      .cost([](const Sized& c) { return pool_cost(c, c.node().input(0)); })
      .computes_in(DType::f32)
      .attr("count_include_pad", int64_t{0})
      .attr_required("dims")
      .shape(infer_pool_grad);
  global_pool(ops, "GlobalAveragePool", "ReduceMean");
  global_pool(ops, "GlobalMaxPool", "ReduceMax");
}

const Family<OpSet> kPoolOps("ops", "pool", register_pool);

}  // namespace ort
