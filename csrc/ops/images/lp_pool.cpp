// Pooling that is said in terms of other ops: norms over windows, and what undoes a maximum.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

Value powers(Value x, int64_t p) {
  if (p == 1) return abs(x);
  return p == 2 ? x * x : pow(abs(x), static_cast<double>(p));
}

Value root(Value x, int64_t p) {
  if (p == 1) return x;
  return p == 2 ? sqrt(x) : pow(x, 1.0 / static_cast<double>(p));
}

int64_t norm_of(const Attrs& attrs, std::string_view op) {
  const int64_t p = attrs.i("p");
  check(p > 0, "[{}] p is {}, expected a positive number", op, p);
  return p;
}

// Zeros where windows reach over x's end, which add nothing: so no window is cut off.
Value padded(Value x, const Attrs& attrs) {
  const size_t n = x.dims().size() - 2;
  const auto& kernel = attrs.ints("kernel_shape");
  const bool valid = attrs.s("auto_pad") == "VALID";
  const auto strides = ints_or(attrs, "strides", n, 1),
             dilations = ints_or(attrs, "dilations", n, 1),
             pads = valid ? std::vector<int64_t>(2 * n) : ints_or(attrs, "pads", 2 * n, 0);
  check(kernel.size() == n && strides.size() == n && dilations.size() == n && pads.size() == 2 * n,
        "[LpPool] kernel_shape {}, strides {}, dilations {} and pads {} do not fit {} spatial axes",
        kernel, strides, dilations, pads, n);
  for (size_t i = 0; i < n; ++i) {
    check(strides[i] > 0 && pads[i] >= 0 && pads[n + i] >= 0,
          "[LpPool] strides are {} and pads {}, expected positive strides and no negative pads",
          strides, pads);
    const auto axis = static_cast<int64_t>(2 + i);
    Dim after = pads[n + i];
    if (attrs.i("ceil_mode")) {
      // A window that starts beyond the input and the padding before it does not count.
      const Dim size = x.dim(axis) + pads[i], reach = dilations[i] * (kernel[i] - 1) + 1;
      const Dim all = floor_div(size + after - reach + (2 * strides[i] - 1), strides[i]);
      const Dim begun = floor_div(size + (strides[i] - 1), strides[i]);
      after = max((min(all, begun) - 1) * Dim(strides[i]) + reach - size, 0);
    }
    if (pads[i] != 0 || after != Dim(0)) x = pad_axis(x, axis, pads[i], after);
  }
  return x;
}

Value lp_pool(const OpCall& c) {
  const int64_t p = norm_of(c.attrs(), "LpPool");
  const Value x = c.x(0);
  check(x.dims().size() >= 3, "[LpPool] X has shape {}, expected [N, C, D1..]", x.dims());
  const std::string& auto_pad = c.attrs().s("auto_pad");
  Attrs attrs = c.attrs();
  attrs.erase("p");
  attrs.set("count_include_pad", int64_t{1});
  Value raised = powers(x, p);
  if (auto_pad == "NOTSET" || auto_pad == "VALID") {
    raised = padded(raised, c.attrs());
    attrs.erase("pads");
    attrs.erase("auto_pad");
    attrs.set("ceil_mode", int64_t{0});
  }
  double window = 1;
  for (const int64_t size : attrs.ints("kernel_shape")) window *= static_cast<double>(size);
  return root(c.graph().emit1("AveragePool", {raised}, std::move(attrs)) * window, p);
}

Value global_lp_pool(const OpCall& c) {
  const int64_t p = norm_of(c.attrs(), "GlobalLpPool");
  std::vector<int64_t> axes;
  for (int64_t i = 2; i < c.x().rank(); ++i) axes.push_back(i);
  return root(reduce_sum(powers(c.x(), p), axes), p);
}

// The sizes that were pooled, where they are not said: those that the windows come to.
Dims unpooled(const OpCall& c) {
  const Dims d = c.x(0).dims();
  check(d.size() >= 3, "[MaxUnpool] X has shape {}, expected [N, C, D1..]", d);
  if (c.has(2)) {
    const std::optional<Dims> asked = c.graph().contents(c.x(2).id);
    check(asked && asked->size() == d.size(), "[MaxUnpool] output_shape has {} numbers, X has {}",
          asked ? asked->size() : 0, d.size());
    return *asked;
  }
  const size_t n = d.size() - 2;
  const auto& kernel = c.attrs().ints("kernel_shape");
  const auto strides = ints_or(c.attrs(), "strides", n, 1),
             pads = ints_or(c.attrs(), "pads", 2 * n, 0);
  check(kernel.size() == n && strides.size() == n && pads.size() == 2 * n,
        "[MaxUnpool] kernel_shape {}, strides {} and pads {} do not fit {} spatial axes", kernel,
        strides, pads, n);
  Dims whole{d[0], d[1]};
  for (size_t i = 0; i < n; ++i)
    whole.push_back((d[2 + i] - 1) * Dim(strides[i]) - pads[i] - pads[n + i] + kernel[i]);
  return whole;
}

// Each element at the place in the whole tensor that its index names, zeros elsewhere: of what
// MaxPool read, whose sizes output_shape says where windows left some of it out.
Value max_unpool(const OpCall& c) {
  const Dims whole = unpooled(c);
  const auto flat = [](Value value) { return reshape(value, {product(value.dims())}); };
  const Value none = full(c.graph(), {product(whole)}, 0.0, c.x(0).dtype());
  return reshape(c.graph().emit1("ScatterElements", {none, flat(c.x(1)), flat(c.x(0))}), whole);
}

}  // namespace

static void register_lp_pool(OpSet& ops) {
  ops.op("LpPool")
      .in("X", kFloating)
      .out("Y")
      .since(2)
      .attr("auto_pad", std::string("NOTSET"))
      .attr("ceil_mode", int64_t{0})
      .attr_optional("dilations")
      .attr_required("kernel_shape")
      .attr("p", int64_t{2})
      .attr_optional("pads")
      .attr_optional("strides")
      .defined_as(lp_pool);
  ops.op("GlobalLpPool")
      .in("X", kFloating)
      .out("Y")
      .since(2)
      .attr("p", int64_t{2})
      .defined_as(global_lp_pool);
  ops.op("MaxUnpool")
      .in("X", kFloating)
      .in("I", kInt64, "I")
      .in_optional("output_shape", kInt64, "S")
      .host()
      .out("output")
      .since(9)
      .attr_required("kernel_shape")
      .attr_optional("pads")
      .attr_optional("strides")
      .differentiable_inputs({0})
      .defined_as(max_unpool);
}

const Family<OpSet> kLpPoolOps("ops", "lp_pool", register_lp_pool);

}  // namespace ort
