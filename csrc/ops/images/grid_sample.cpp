// An image read at positions that a grid names, and the gradients.
#include <algorithm>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

void expect_one_of(const InferContext& c, std::string_view name, std::string_view a,
                   std::string_view b, std::string_view third) {
  const std::string& word = c.attrs().s(name);
  c.require(word == a || word == b || word == third,
            "attribute '{}' is '{}', expected one of {}, {}, {}", name, word, a, b, third);
}

// What X [N, C, D1..Dr] gives at grid [N, O1..Or, r]: [N, C, O1..Or].
Dims sampled(InferContext& c, const Dims& x, const Dims& grid) {
  const size_t n = x.size() - 2;
  c.require(x.size() >= 3 && grid.size() == x.size() &&
                grid.back().value().value_or(static_cast<int64_t>(n)) == static_cast<int64_t>(n),
            "X has shape {} and grid {}, expected [N, C, D1..Dr] and [N, O1..Or, r]", x, grid);
  c.assume_equal({grid.back()}, {Dim(static_cast<int64_t>(n))}, "numbers of a position");
  c.require(may_be_equal(x[0], grid[0]), "X has {} images, grid is for {}", x[0], grid[0]);
  c.assume_equal({grid[0]}, {x[0]}, "images");
  for (size_t i = 2; i < x.size(); ++i) {
    c.require(!x[i].is(0), "X has shape {}: there is nothing to read along axis {}", x, i);
    c.assume(at_least(x[i], 1), "size of X");
  }
  Dims y{x[0], x[1]};
  y.insert(y.end(), grid.begin() + 1, grid.end() - 1);
  return y;
}

void expect_sampling_words(const InferContext& c) {
  expect_one_of(c, "mode", "linear", "nearest", "cubic");
  expect_one_of(c, "padding_mode", "zeros", "border", "reflection");
}

void infer_sample(InferContext& c) {
  expect_sampling_words(c);
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  c.out(0, c.dtype(), sampled(c, c.dims(0), c.dims(1)));
}

// dX of shape "dims", from dY and grid.
void infer_sample_grad(InferContext& c) {
  expect_sampling_words(c);
  dims_attr(0)(c);
  if (c.ranked(0) && c.ranked(1))
    expect_dims(c, 0, sampled(c, std::get<Dims>(*c.attrs().find("dims")), c.dims(1)));
}

// From dY, X and grid; it has grid's type.
void infer_positions_grad(InferContext& c) {
  expect_sampling_words(c);
  same_dims(c, 0, 2);
  if (c.ranked(0) && c.ranked(1) && c.ranked(2))
    expect_dims(c, 0, sampled(c, c.dims(1), c.dims(2)));
}

double taps(const Sized& c, double positions) {
  const std::string& mode = c.attrs().s("mode");
  const double axis = mode == "cubic" ? 4 : mode == "linear" ? 2 : 1;
  double all = 1;
  for (double rank = positions; rank > 2; --rank) all *= axis;
  return all;
}

// Each value of dY or Y is a sum over its taps.
OpSchema& sampling(OpSchema& schema, bool forward) {
  return schema.attr("align_corners", int64_t{0})
      .attr("mode", std::string("linear"))
      .attr("padding_mode", std::string("zeros"))
      // The grid's numbers are positions in elements of X already: align_corners says nothing.
      .attr_ours("in_elements")
      .cost([forward](const Sized& c) {
        const Value y = forward ? c.node().output() : c.node().input(0);
        const auto rank = y.type().dims ? static_cast<double>(y.type().dims->size()) : 4;
        return 8 * taps(c, rank) * c.elements(y);
      })
      .computes_in(DType::f32);
}

Outputs sample_gradient(const Backward& b) {
  Outputs d(2);
  if (b.needs(0)) {
    Attrs attrs = b.attrs();
    attrs.set("dims", b.x(0).dims());
    d[0] = b.graph().emit1("ort::GridSampleGrad", {b.dy(), b.x(1)}, std::move(attrs));
  }
  if (b.needs(1))
    d[1] = b.attrs().s("mode") == "nearest" ? zeros_like(b.x(1))
                                            : b.graph().emit1("ort::GridSamplePositionsGrad",
                                                              {b.dy(), b.x(0), b.x(1)}, b.attrs());
  return d;
}

}  // namespace

static void register_grid_sample(OpSet& ops) {
  sampling(ops.op("GridSample").in("X", kNumeric).in("grid", kFloating, "G").out("Y").since(20),
           true)
      .shape(infer_sample)
      .gradient(sample_gradient);
  // dX of shape `dims`: each dY by the weights of the elements that its position reads.
  sampling(ops.op("ort::GridSampleGrad")
               .in("dY", kFloating)
               .in("grid", kFloating, "G")
               .out("dX")
               .attr_required("dims"),
           false)
      .shape(infer_sample_grad);
  // How Y's sum by dY changes as a position moves.
  sampling(ops.op("ort::GridSamplePositionsGrad")
               .in("dY", kFloating)
               .in("X", kFloating)
               .in("grid", kFloating, "G")
               .out("dgrid", kFloating, "G"),
           false)
      .shape(infer_positions_grad);
}

const Family<OpSet> kGridSampleOps("ops", "grid_sample", register_grid_sample);

}  // namespace ort
