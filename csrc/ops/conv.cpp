// Convolutions over [N, C, D1..Dn] and their gradients.
#include <algorithm>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Spatial attributes with their defaults for n axes.
struct Window {
  Dims kernel;
  std::vector<int64_t> strides, dilations, pads;
  // What the kernel spans along axis i.
  Dim reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

// The kernel's sizes are the weight's; attribute kernel_shape only says so again.
Dims kernel_of(InferContext& c, const Dims& weight_dims) {
  const Dims kernel(weight_dims.begin() + 2, weight_dims.end());
  if (!c.attrs().has("kernel_shape")) return kernel;
  const auto& given = c.attrs().ints("kernel_shape");
  const Dims said(given.begin(), given.end());
  bool fits = said.size() == kernel.size();
  for (size_t i = 0; fits && i < said.size(); ++i)
    fits = !kernel[i].value() || kernel[i] == said[i];
  c.require(fits, "kernel_shape {} does not fit w of shape {}", said, weight_dims);
  c.assume_equal(kernel, said, "kernel_shape");
  return said;
}

Window window_of(InferContext& c, size_t n, const Dims& weight_dims) {
  Window w;
  w.strides = ints_or(c.attrs(), "strides", n, 1);
  w.dilations = ints_or(c.attrs(), "dilations", n, 1);
  w.pads = ints_or(c.attrs(), "pads", 2 * n, 0);
  w.kernel = kernel_of(c, weight_dims);
  c.require(w.kernel.size() == n && w.strides.size() == n && w.dilations.size() == n &&
                w.pads.size() == 2 * n,
            "kernel_shape {}, strides {}, dilations {} and pads {} do not fit {} spatial axes",
            w.kernel, w.strides, w.dilations, w.pads, n);
  for (size_t i = 0; i < n; ++i)
    c.require(w.strides[i] > 0 && w.dilations[i] > 0 && w.kernel[i].value().value_or(1) > 0,
              "kernel_shape {}, strides {} and dilations {} must be positive", w.kernel, w.strides,
              w.dilations);
  for (const int64_t pad : w.pads) c.require(pad >= 0, "pads {} has a negative size", w.pads);
  expect_small(c, "strides", w.strides);
  expect_small(c, "dilations", w.dilations);
  expect_small(c, "pads", w.pads);
  for (const Dim& size : w.kernel) c.assume(at_least(size, 1), "size of the kernel");
  return w;
}

}  // namespace

void infer_conv(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, written_dtype(c), std::nullopt);
  const Dims &x = c.dims(0), &w = c.dims(1);
  c.require(x.size() >= 3 && w.size() == x.size(),
            "x has shape {}, w has shape {}, expected [N, C, D1..] and "
            "[M, C / group, K1..]",
            x, w);
  const Dim channels = w[1] * c.attrs().i("group");
  c.require(may_be_equal(channels, x[1]),
            "x has {} channels, w of shape {} with group {} expects {}", x[1], w,
            c.attrs().i("group"), channels);
  c.assume(equal_sizes(x[1], channels), "channels");
  const int64_t group = c.attrs().i("group");
  c.require(group > 0 && mod(w[0], group).value().value_or(0) == 0,
            "group {} does not divide w of shape {}", group, w);
  c.assume(divisible(w[0], group), "filters");
  expect_dims(c, 2, {w[0]});
  const size_t n = x.size() - 2;
  const Window win = window_of(c, n, w);
  Dims dims{x[0], w[0]};
  const std::string& auto_pad = c.attrs().s("auto_pad");
  for (size_t i = 0; i < n; ++i) {
    const Dim size = x[2 + i];
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      dims.push_back(same_windows(c, size, win.reach(i), win.strides[i]));
      continue;
    }
    const Dim pads = auto_pad == "VALID" ? Dim(0) : Dim(win.pads[i]) + win.pads[n + i];
    if (win.strides[i] > 1) c.assume(at_least(size + pads, win.reach(i)), "padded size");
    dims.push_back(floor_div(size + pads - win.reach(i), win.strides[i]) + 1);
    c.require(dims.back().value().value_or(0) >= 0,
              "x has shape {}: axis {} is smaller than the kernel {}", x, 2 + i, win.kernel);
  }
  c.out(0, written_dtype(c), std::move(dims));
}

namespace {

void infer_conv_transpose(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  const Dims &x = c.dims(0), &w = c.dims(1);
  c.require(x.size() >= 3 && w.size() == x.size(),
            "x has shape {}, w has shape {}, expected one rank of at least 3", x, w);
  const int64_t group = c.attrs().i("group");
  c.require(group > 0 && mod(w[0], group).value().value_or(0) == 0,
            "group {} does not divide w of shape {}", group, w);
  c.require(may_be_equal(x[1], w[0]), "x has {} channels, w of shape {} expects {}", x[1], w, w[0]);
  c.assume(equal_sizes(x[1], w[0]), "channels");
  c.assume(divisible(w[0], group), "channels");
  expect_dims(c, 2, {w[1] * group});
  const size_t n = x.size() - 2;
  const Window win = window_of(c, n, w);
  const auto extra = ints_or(c.attrs(), "output_padding", n, 0);
  c.require(extra.size() == n, "output_padding {} does not fit {} spatial axes", extra, n);
  expect_small(c, "output_padding", extra);
  const bool given = c.attrs().has("output_shape");
  const auto shape = given ? c.attrs().ints("output_shape") : std::vector<int64_t>{};
  c.require(!given || shape.size() == n || shape.size() == n + 2,
            "output_shape {} does not fit {} spatial axes", shape, n);
  expect_small(c, "output_shape", shape);
  Dims dims{x[0], w[1] * c.attrs().i("group")};
  const std::string& auto_pad = c.attrs().s("auto_pad");
  for (size_t i = 0; i < n; ++i) {
    c.require(extra[i] >= 0, "output_padding {} has a negative size", extra);
    if (given) {
      dims.push_back(shape[shape.size() - n + i]);
    } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      // ONNX's text has a size of in * stride, which onnxruntime does not fill with zeros.
      const Dim reach = win.reach(i) + extra[i];
      c.assume(at_least(reach, win.strides[i]), "reach of the kernel with auto_pad");
      dims.push_back(x[2 + i] * win.strides[i]);
    } else {
      dims.push_back((x[2 + i] - 1) * win.strides[i] +
                     (win.reach(i) + extra[i] - win.pads[i] - win.pads[n + i]));
    }
  }
  c.out(0, c.dtype(), std::move(dims));
}

Attrs with_dims(const Attrs& attrs, Dims dims) {
  Attrs result = attrs;
  result.set("dims", std::move(dims));
  return result;
}

Outputs conv_gradient(const Backward& b) {
  Graph& g = b.graph();
  Outputs grads(3);
  if (b.needs(0))
    grads[0] = g.emit1("ort::ConvGradX", {b.dy(), b.x(1)}, with_dims(b.attrs(), b.x(0).dims()));
  if (b.needs(1))
    grads[1] = g.emit1("ort::ConvGradW", {b.dy(), b.x(0)}, with_dims(b.attrs(), b.x(1).dims()));
  if (b.needs(2)) {
    std::vector<int64_t> axes = all_axes(b.dy());
    axes.erase(axes.begin() + 1);
    grads[2] = reduce_sum(b.dy(), axes, false);
  }
  return grads;
}

// Each element of `over`, which has the channels of the weight's first axis, meets one filter.
double cost_over(const Sized& node, Value over, Value weight) {
  return 2 * node.elements(over) * node.elements(weight) /
         std::max(weight.type().dims ? node.size(weight.dim(0)) : 1, 1.0);
}

}  // namespace

double conv_cost(const Sized& node) {
  return cost_over(node, node.node().output(), node.node().input(1));
}

OpSchema& window_attrs(OpSchema& schema) {
  return schema.attr("auto_pad", std::string("NOTSET"))
      .attr("group", int64_t{1})
      .attr_optional("kernel_shape")
      .attr_optional("strides")
      .attr_optional("dilations")
      .attr_optional("pads");
}

namespace {

OpSchema& conv_attrs(OpSchema& schema) {
  return window_attrs(schema.computes_in(DType::f32));
}

Value fused_conv(const OpCall& c) {
  Attrs attrs = c.attrs();
  attrs.erase("activation");
  attrs.erase("activation_numbers");
  Value y = c.graph().emit1("Conv", {c.x(0), c.x(1), c.x(2)}, attrs);
  if (c.has(3)) y = y + c.x(3);
  return c.graph().ops().activated(y, c.attrs());
}

// The gradient of all that a ConvTranspose computes, of whose ends `dy` has none: under auto_pad
// and output_shape the sizes say where it was cut. Sums that go past its end are of zeros.
Value uncut(const Backward& b, Value dy) {
  const Attrs& attrs = b.attrs();
  const std::string& auto_pad = attrs.s("auto_pad");
  const size_t n = static_cast<size_t>(dy.rank()) - 2;
  const auto strides = ints_or(attrs, "strides", n, 1),
             dilations = ints_or(attrs, "dilations", n, 1),
             extra = ints_or(attrs, "output_padding", n, 0);
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!same && !attrs.has("output_shape")) return dy;
  const bool more_after = auto_pad == "SAME_UPPER";
  for (size_t i = 0; i < n; ++i) {
    const auto axis = static_cast<int64_t>(i) + 2;
    const Dim reach = (b.x(1).dim(axis) - 1) * dilations[i] + 1, size = dy.dim(axis);
    const Dim full = (b.x(0).dim(axis) - 1) * strides[i] + reach + extra[i];
    const Dim cut = max(full - size, 0), less = floor_div(cut, 2);
    const Dim before = more_after ? less : cut - less;
    dy = pad_axis(slice(dy, axis, 0, min(size, full)), axis, before, cut - before);
  }
  return dy;
}

// ConvTranspose is the gradient of Conv with respect to its input, and the other way round.
Outputs conv_transpose_gradient(const Backward& b) {
  Graph& g = b.graph();
  Attrs attrs = b.attrs();
  const Value dy = uncut(b, b.dy());
  if (dy != b.dy() || attrs.s("auto_pad") == "VALID") attrs.erase("pads");
  for (const char* name : {"output_padding", "output_shape", "auto_pad"}) attrs.erase(name);
  Outputs grads(3);
  if (b.needs(0)) {
    Value dx = g.emit1("Conv", {dy, b.x(1), Value{}}, attrs);
    for (int64_t axis = 2; axis < dx.rank(); ++axis)
      if (!(dx.dim(axis) == b.x(0).dim(axis))) dx = slice(dx, axis, 0, b.x(0).dim(axis));
    grads[0] = dx;
  }
  if (b.needs(1))
    grads[1] = g.emit1("ort::ConvGradW", {b.x(0), dy}, with_dims(attrs, b.x(1).dims()));
  if (b.needs(2)) {
    std::vector<int64_t> axes = all_axes(b.dy());
    axes.erase(axes.begin() + 1);
    grads[2] = reduce_sum(b.dy(), axes, false);
  }
  return grads;
}

}  // namespace

static void register_conv(OpSet& ops) {
  conv_attrs(ops.op("Conv")
                 .in("x", kFloating)
                 .in("w", kFloating)
                 .in_optional("b", kFloating)
                 .out("y")
                 .since(1))
      .cost(conv_cost)
      .shape(infer_conv)
      .gradient(conv_gradient);
  // As the passes build it: activation(conv(x, w) + b + z).
  conv_attrs(ops.op("ort::Conv")
                 .in("x", kFloating)
                 .in("w", kFloating)
                 .in_optional("b", kFloating)
                 .in_optional("z", kFloating)
                 .out("y"))
      .attr("activation", std::string("none"))
      .attr("activation_numbers", std::vector<double>{})
      .cost(conv_cost)
      .shape([](InferContext& c) {
        infer_conv(c);
        if (c.node().output().type().dims) expect_dims(c, 3, c.node().output().dims());
      })
      .defined_as(fused_conv);
  conv_attrs(ops.op("ort::ConvGradX").in("dy", kFloating).in("w", kFloating).out("dx"))
      .attr_required("dims")
      .cost([](const Sized& c) { return cost_over(c, c.node().input(0), c.node().input(1)); })
      .shape(dims_attr(0));
  conv_attrs(ops.op("ort::ConvGradW").in("dy", kFloating).in("x", kFloating))
      .out("dw", kFloating, "Y")
      .attr("to", int64_t{0})
      .attr_required("dims")
      .cost([](const Sized& c) { return cost_over(c, c.node().input(0), c.node().output()); })
      .shape([](InferContext& c) {
        dims_attr(0)(c);
        c.out(0, written_dtype(c), c.node().output().type().dims);
      });
  conv_attrs(ops.op("ConvTranspose")
                 .in("x", kFloating)
                 .in("w", kFloating)
                 .in_optional("b", kFloating)
                 .out("y")
                 .since(1))
      .attr_optional("output_padding")
      .attr_optional("output_shape")
      .cost([](const Sized& c) { return cost_over(c, c.node().input(0), c.node().input(1)); })
      .shape(infer_conv_transpose)
      .gradient(conv_transpose_gradient);
}

const Family<OpSet> kConvOps("ops", "conv", register_conv);

}  // namespace ort
