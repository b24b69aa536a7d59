// A convolution whose taps lie where offsets put them: samples of the image, then one product.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// The numbers of a node, by spatial axis.
struct Taps {
  Dims kernel;
  std::vector<int64_t> strides, dilations, pads;
  int64_t group, offset_group;

  explicit Taps(const OpCall& c) {
    const Dims &x = c.x(0).dims(), &w = c.x(1).dims();
    check(x.size() >= 3 && w.size() == x.size() && c.x(2).dims().size() == x.size(),
          "[DeformConv] X has shape {}, W {} and offset {}, expected one rank from 3 on", x, w,
          c.x(2).dims());
    const size_t n = x.size() - 2;
    const std::vector<int64_t> said = ints_or(c.attrs(), "kernel_shape", 0, 0);
    check(said.empty() || said.size() == n, "[DeformConv] kernel_shape is {}, W has shape {}", said,
          w);
    kernel.assign(w.begin() + 2, w.end());
    for (size_t i = 0; i < said.size(); ++i) {
      check(may_be_equal(kernel[i], said[i]), "[DeformConv] kernel_shape is {}, W has shape {}",
            said, w);
      kernel[i] = said[i];
    }
    strides = ints_or(c.attrs(), "strides", n, 1);
    dilations = ints_or(c.attrs(), "dilations", n, 1);
    pads = ints_or(c.attrs(), "pads", 2 * n, 0);
    group = c.attrs().i("group");
    offset_group = c.attrs().i("offset_group");
    expect(x, w);
  }
  size_t axes() const { return kernel.size(); }
  Dim all() const { return product(kernel); }

 private:
  void expect(const Dims& x, const Dims& w) const {
    const size_t n = axes();
    bool fit = strides.size() == n && dilations.size() == n && pads.size() == 2 * n;
    const auto within = [](int64_t number, int64_t least) {
      return number >= least && number <= INT32_MAX;
    };
    for (size_t i = 0; fit && i < n; ++i)
      fit = within(strides[i], 1) && within(dilations[i], 1) && within(pads[i], 0) &&
            within(pads[n + i], 0) && within(kernel[i].value().value_or(1), 1);
    check(fit,
          "[DeformConv] strides {}, dilations {} and pads {} do not fit a kernel of {}, or are not "
          "positive numbers of 32 bits",
          strides, dilations, pads, kernel);
    check(within(group, 1) && within(offset_group, 1),
          "[DeformConv] group is {} and offset_group {}", group, offset_group);
    const auto channels = x[1].value(), read = w[1].value(), made = w[0].value();
    check((!channels || (*channels % group == 0 && *channels % offset_group == 0)) &&
              (!channels || !read || Dim(*read) * Dim(group) == Dim(*channels)) &&
              (!made || *made % group == 0),
          "[DeformConv] X has shape {}, W {}: they do not fit {} groups and {} groups of offsets",
          x, w, group, offset_group);
  }
};

// [images, channels..] of offset or mask, which have numbers for each tap and place.
void expect_places(const OpCall& c, const Taps& taps, size_t input, int64_t each, const Dims& out) {
  const Dims& d = c.x(input).dims();
  Dims expected{c.x(0).dim(0), taps.all() * Dim(taps.offset_group * each)};
  expected.insert(expected.end(), out.begin(), out.end());
  bool fits = d.size() == expected.size();
  for (size_t i = 0; fits && i < d.size(); ++i) fits = may_be_equal(d[i], expected[i]);
  check(fits, "[DeformConv] {} has shape {}, expected {}", input == 2 ? "offset" : "mask", d,
        expected);
}

Dims places_of(const OpCall& c, const Taps& taps) {
  const Dims& x = c.x(0).dims();
  Dims out;
  for (size_t i = 0; i < taps.axes(); ++i) {
    const Dim reach = (taps.kernel[i] - 1) * Dim(taps.dilations[i]) + 1;
    out.push_back(
        floor_div(x[2 + i] + taps.pads[i] + taps.pads[taps.axes() + i] - reach, taps.strides[i]) +
        1);
  }
  return out;
}

// Where taps lie along an axis without offsets: [1, 1, taps, 1, 1.., O, ..1].
Value regular(Graph& g, const Taps& taps, size_t axis, const Dim& out, DType dtype) {
  Dims along(taps.axes(), Dim(1)), by_tap(4 + taps.axes(), Dim(1)), by_place = by_tap;
  along[axis] = taps.kernel[axis];
  by_tap[2] = taps.all();
  by_place[4 + axis] = out;
  const Value steps = positions(g, taps.kernel[axis]) * static_cast<double>(taps.dilations[axis]) -
                      static_cast<double>(taps.pads[axis]);
  const Value taken = cast(expand(reshape(steps, along), taps.kernel), dtype);
  const Value places = cast(positions(g, out), dtype) * static_cast<double>(taps.strides[axis]);
  return reshape(taken, by_tap) + reshape(places, by_place);
}

// What the taps read: [N offset_group, C / offset_group, taps O1, O2..].
Value samples(const OpCall& c, const Taps& taps, const Dims& out) {
  Graph& g = c.graph();
  const size_t n = taps.axes();
  const Value offset = widen(c.x(2), DType::f32);
  Dims apart{c.x(0).dim(0), Dim(taps.offset_group), taps.all(), Dim(static_cast<int64_t>(n))};
  apart.insert(apart.end(), out.begin(), out.end());
  const Value offsets = reshape(offset, apart);
  const Dim images = c.x(0).dim(0) * Dim(taps.offset_group);
  Dims flat{images, out[0] * taps.all()};
  flat.insert(flat.end(), out.begin() + 1, out.end());
  Dims column = flat, parts = flat;
  column.emplace_back(1);
  std::vector<Value> numbers;
  for (size_t axis = n; axis-- > 0;) {  // GridSample names the last axis first
    const auto at = static_cast<int64_t>(axis);
    const Value place =
        slice(offsets, 3, at, at + 1) + regular(g, taps, axis, out[axis], offsets.dtype());
    numbers.push_back(reshape(place, column));
  }
  const Value grid = concat(numbers, static_cast<int64_t>(n) + 1);
  const Dims& x = c.x(0).dims();
  Dims image{images, floor_div(x[1], taps.offset_group)};
  image.insert(image.end(), x.begin() + 2, x.end());
  Value read = g.emit1("GridSample", {reshape(c.x(0), image), grid}, {{"in_elements", int64_t{1}}});
  if (!c.has(4)) return read;
  parts.insert(parts.begin() + 1, Dim(1));
  return read * reshape(c.x(4), parts);
}

Value deform_conv(const OpCall& c) {
  const Taps taps(c);
  const Dims out = places_of(c, taps), x = c.x(0).dims(), w = c.x(1).dims();
  expect_places(c, taps, 2, static_cast<int64_t>(taps.axes()), out);
  if (c.has(4)) expect_places(c, taps, 4, 1, out);
  const Dim rows = w[1] * taps.all(), made = floor_div(w[0], taps.group);
  const Value columns = reshape(samples(c, taps, out), {x[0], Dim(taps.group), rows, product(out)});
  const Value weight = reshape(c.x(1), {Dim(taps.group), made, rows});
  Dims dims{x[0], w[0]};
  dims.insert(dims.end(), out.begin(), out.end());
  Value y = reshape(matmul(weight, columns), dims);
  if (!c.has(3)) return y;
  check(c.x(3).rank() == 1 && may_be_equal(c.x(3).dim(0), w[0]),
        "[DeformConv] B has shape {}, expected [{}]", c.x(3).dims(), w[0]);
  Dims bias(taps.axes() + 1, Dim(1));
  bias[0] = w[0];
  return y + reshape(c.x(3), bias);
}

}  // namespace

static void register_deform_conv(OpSet& ops) {
  ops.op("DeformConv")
      .in("X", kFloating)
      .in("W", kFloating)
      .in("offset", kFloating)
      .in_optional("B", kFloating)
      .in_optional("mask", kFloating)
      .out("Y")
      .since(19)
      .attr_optional("dilations")
      .attr("group", int64_t{1})
      .attr_optional("kernel_shape")
      .attr("offset_group", int64_t{1})
      .attr_optional("pads")
      .attr_optional("strides")
      .defined_as(deform_conv);
}

const Family<OpSet> kDeformConvOps("ops", "deform_conv", register_deform_conv);

}  // namespace ort
