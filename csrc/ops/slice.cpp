// Parts of a tensor: Slice, Pad, Trilu and their gradients.
#include <algorithm>
#include <set>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Beyond every size, and far enough from the ends of int64 to add a size.
constexpr int64_t kBeyond = int64_t{1} << 61;

Dim within(const Dim& bound) {
  return bound.value() ? Dim(std::clamp(*bound.value(), -kBeyond, kBeyond)) : bound;
}

// Where a bound lies on an axis of size n: negative ones count from the end, all are clamped.
Dim position(const Dim& n, Dim bound, bool up) {
  bound = within(bound);
  const auto number = bound.value();
  if (!n.value() && number && *number >= INT32_MAX) return up ? n : n - 1;
  if (!n.value() && number && *number <= -INT32_MAX) return up ? 0 : -1;
  if (lower_bound(Dim(0) - bound).value_or(0) > 0)
    bound = n + bound;
  else if (lower_bound(bound).value_or(-1) < 0)  // of either sign
    bound = bound + n * min(1, max(0, Dim(0) - bound));
  return up ? max(0, min(bound, n)) : max(-1, min(bound, n - 1));
}

// Length of [start:end:step] on an axis of size n. Backwards, what begins before the first element
// begins at it.
Dim slice_length(const Dim& n, const Dim& start, const Dim& end, int64_t step) {
  const bool up = step > 0;
  const Dim begin = position(n, start, up), to = position(n, end, up),
            from = up ? begin : max(begin, min(0, n - 1));
  const Dim span = up ? to - from : from - to, stride = up ? within(step) : Dim(0) - within(step);
  return max(0, floor_div(span + (stride - 1), stride));
}

// The same of bounds that are said to lie inside the axis.
Dim inner_length(const Dim& n, const Dim& start, const Dim& end, int64_t step) {
  const auto size = n.value(), from = start.value(), to = end.value();
  if ((size && from && to) || step < 0) return slice_length(n, start, end, step);
  const Dim low = from && *from < 0 ? n + start : start;
  Dim high = to && *to < 0 ? n + end : end;
  if (to && *to >= INT32_MAX) high = n;
  const bool beyond = (high - n).value().value_or(0) > 0;
  if (beyond) high = n;
  if (to && *to > 1 && !size && !beyond) high = min(n, high);
  return step == 1 ? high - low : floor_div(high - low + (step - 1), step);
}

// Sorted out: axes and steps of a Slice-like node; nullopt when they are known only at run time.
struct Cut {
  std::vector<int64_t> axes, steps;
};

std::optional<Cut> cut_of(InferContext& c, size_t axes_input, size_t steps_input, size_t count) {
  Cut cut;
  for (size_t i = 0; i < count; ++i) {
    cut.axes.push_back(static_cast<int64_t>(i));
    cut.steps.push_back(1);
  }
  if (c.has(axes_input)) {
    const auto axes = c.ints(axes_input);
    if (!axes) return std::nullopt;
    cut.axes = *axes;
  }
  if (c.has(steps_input)) {
    const auto steps = c.ints(steps_input);
    if (!steps) return std::nullopt;
    cut.steps = *steps;
  }
  c.require(cut.axes.size() == count && cut.steps.size() == count,
            "starts has {} elements, axes {}, steps {}", count, cut.axes.size(), cut.steps.size());
  for (int64_t& axis : cut.axes) axis = c.axis(axis, c.rank(0));
  const std::set<int64_t> distinct(cut.axes.begin(), cut.axes.end());
  c.require(distinct.size() == count, "axes {} name an axis twice", cut.axes);
  return cut;
}

void infer_slice(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims = c.dims(0);
  const bool inside = c.attrs().i("inside", 0) != 0;
  for (size_t i = 1; i < 5; ++i)
    c.require(!c.has(i) || !c.ranked(i) || c.rank(i) == 1, "{} has shape {}, expected one axis",
              c.node().schema->inputs()[i].name, c.has(i) && c.ranked(i) ? c.dims(i) : Dims{});
  const auto starts = c.contents(1), ends = c.contents(2);
  const size_t count = starts ? starts->size() : 0;
  c.require(!starts || !ends || ends->size() == count, "starts and ends have {} and {} elements",
            count, ends ? ends->size() : 0);
  const auto cut = starts && ends ? cut_of(c, 3, 4, count) : std::nullopt;
  if (!cut) {
    for (Dim& dim : dims) dim = c.fresh();
    return c.out(0, c.dtype(), std::move(dims));
  }
  for (size_t i = 0; i < count; ++i) {
    c.require(cut->steps[i] != 0, "steps {} has a zero", cut->steps);
    Dim& dim = dims[static_cast<size_t>(cut->axes[i])];
    const Dim exact = slice_length(dim, (*starts)[i], (*ends)[i], cut->steps[i]);
    if (!inside) {
      dim = exact;
      continue;
    }
    const Dim inner = inner_length(dim, (*starts)[i], (*ends)[i], cut->steps[i]);
    c.assume(equal_sizes(exact, inner), "length of a slice");
    dim = inner;
  }
  c.out(0, c.dtype(), dims);
  const auto known = c.contents(0);
  if (known && c.rank(0) == 1 && count == 1 && dims[0].value() && (*starts)[0].value()) {
    int64_t at = *(*starts)[0].value();
    const int64_t size = static_cast<int64_t>(known->size());
    at = std::clamp<int64_t>(at < 0 ? at + size : at, 0, std::max<int64_t>(size - 1, 0));
    Dims part;
    for (int64_t i = 0; i < *dims[0].value(); ++i)
      part.push_back((*known)[static_cast<size_t>(at + i * cut->steps[0])]);
    c.out_contents(0, std::move(part));
  }
}

Value slice_gradient(const Backward& b) {
  Graph& g = b.graph();
  const std::vector<Value> in{b.dy(), b.x(1), b.x(3), b.x(4)};
  return g.emit("ort::SliceGrad", in, {{"dims", b.x(0).dims()}})[0];
}

// Sizes that no number tells fit: they are those of tensors.
bool within_int32(const Dim& pad) {
  const int64_t number = pad.value().value_or(0);
  return -INT32_MAX <= number && number <= INT32_MAX;
}

void infer_pad(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims = c.dims(0);
  const auto pads = c.contents(1);
  if (!pads) {
    for (Dim& dim : dims) dim = c.fresh();
    return c.out(0, c.dtype(), std::move(dims));
  }
  const size_t count = pads->size() / 2;
  c.require(pads->size() % 2 == 0, "pads has {} elements, expected two for each axis",
            pads->size());
  c.assume_scalar(2, "elements of value");
  const bool constant = c.attrs().s("mode") == "constant";
  const auto cut = cut_of(c, 3, 99, count);
  if (!cut) {
    for (Dim& dim : dims) dim = c.fresh();
    return c.out(0, c.dtype(), std::move(dims));
  }
  for (const Dim& pad : *pads)
    c.require(within_int32(pad), "pads {} has a number above {}", *pads, INT32_MAX);
  for (size_t i = 0; i < count; ++i) {
    Dim& dim = dims[static_cast<size_t>(cut->axes[i])];
    const bool pads_it = !(*pads)[i].is(0) || !(*pads)[count + i].is(0);
    if (!constant && pads_it) c.assume(at_least(dim, 1), "size of a padded axis");
    dim = dim + (*pads)[i] + (*pads)[count + i];
    c.require(!dim.value() || *dim.value() >= 0, "pads {} leave axis {} of {} with size {}", *pads,
              cut->axes[i], c.dims(0), dim);
  }
  c.out(0, c.dtype(), std::move(dims));
}

// dy is as large as attribute "dims" with the pads.
void infer_pad_grad(InferContext& c) {
  dims_attr(0)(c);
  const auto pads = c.contents(1);
  if (!pads || !c.ranked(0)) return;
  Dims dims = std::get<Dims>(*c.attrs().find("dims"));
  const size_t count = pads->size() / 2;
  const auto cut = cut_of(c, 2, 99, count);
  c.require(cut.has_value(), "the axes are known only at run time");
  for (size_t i = 0; i < count; ++i) {
    Dim& dim = dims.at(static_cast<size_t>(cut->axes[i]));
    dim = dim + (*pads)[i] + (*pads)[count + i];
  }
  c.assume_equal(c.dims(0), dims, "sizes of dy");
}

Value pad_gradient(const Backward& b) {
  const std::string& mode = b.attrs().s("mode");
  Graph& g = b.graph();
  if (mode != "constant") {
    const std::vector<Value> in{b.dy(), b.x(1), b.x(3)};
    return g.emit("ort::PadGrad", in, {{"dims", b.x(0).dims()}, {"mode", mode}})[0];
  }
  // The inverse of a pad is the pad by the negative amounts.
  Dims back = *g.contents(b.x(1).id);
  for (Dim& pad : back) pad = Dim(0) - pad;
  return g.emit1("Pad", {b.dy(), g.sizes(back), number(0.0, b.dy()), b.x(3)});
}

void infer_blocks(InferContext& c, bool to_space) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  const Dims& x = c.dims(0);
  const int64_t block = c.attrs().i("blocksize");
  c.require(x.size() == 4 && block > 0, "x has shape {}, blocksize is {}, expected [N, C, H, W]", x,
            block);
  expect_small(c, "blocksize", {block});
  const Dim square = block * block;
  const auto fits = [&](const Dim& size, const Dim& by) {
    return mod(size, by).value().value_or(0) == 0;
  };
  c.require(to_space ? fits(x[1], square) : fits(x[2], block) && fits(x[3], block),
            "x has shape {}, which blocks of {} do not divide", x, block);
  if (to_space) c.assume(divisible(x[1], square), "channels");
  for (const size_t i : {2, 3})
    if (!to_space) c.assume(divisible(x[i], block), "size of an axis");
  if (to_space)
    return c.out(0, c.dtype(), Dims{x[0], floor_div(x[1], square), x[2] * block, x[3] * block});
  c.out(0, c.dtype(), Dims{x[0], x[1] * square, floor_div(x[2], block), floor_div(x[3], block)});
}

Value depth_to_space(const OpCall& c) {
  const Dims x = c.x().dims();
  const Dim b = c.attrs().i("blocksize"), depth = floor_div(x[1], b * b);
  const bool columns_first = c.attrs().s("mode") == "CRD";
  const Dims split =
      columns_first ? Dims{x[0], depth, b, b, x[2], x[3]} : Dims{x[0], b, b, depth, x[2], x[3]};
  const std::vector<int64_t> perm = columns_first ? std::vector<int64_t>{0, 1, 4, 2, 5, 3}
                                                  : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
  return reshape(transpose(reshape(c.x(), split), perm), {x[0], depth, x[2] * b, x[3] * b});
}

Value space_to_depth(const OpCall& c) {
  const Dims x = c.x().dims();
  const Dim b = c.attrs().i("blocksize"), rows = floor_div(x[2], b), columns = floor_div(x[3], b);
  const std::vector<int64_t> perm = c.attrs().s("mode") == "CRD"
                                        ? std::vector<int64_t>{0, 1, 3, 5, 2, 4}
                                        : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  const Value split = reshape(c.x(), {x[0], x[1], rows, b, columns, b});
  return reshape(transpose(split, perm), {x[0], x[1] * b * b, rows, columns});
}

void register_blocks(OpSet& ops) {
  ops.op("DepthToSpace")
      .in("x")
      .out("y")
      .since(13)
      .attr_required("blocksize")
      .attr("mode", std::string("DCR"))
      .shape([](InferContext& c) { infer_blocks(c, true); })
      .defined_as(depth_to_space);
  ops.op("SpaceToDepth")
      .in("x")
      .out("y")
      .since(13)
      .attr_required("blocksize")
      .attr("mode", std::string("DCR"))
      .shape([](InferContext& c) { infer_blocks(c, false); })
      .defined_as(space_to_depth);
  ops.op("EyeLike")
      .in("x", kAny, "X")
      .out("y")
      .since(9)
      .attr_optional("dtype")
      .attr("k", int64_t{0})
      .shape([](InferContext& c) {
        c.require(!c.ranked(0) || c.rank(0) == 2, "x has shape {}, expected 2 axes",
                  c.ranked(0) ? c.dims(0) : Dims{});
        const int64_t dtype = c.attrs().i("dtype", static_cast<int64_t>(c.dtype()));
        c.require(known_dtype(dtype), "attribute 'dtype' is {}, which is no dtype", dtype);
        c.out(0, static_cast<DType>(dtype), c.type(0).dims);
      })
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        Graph& g = c.graph();
        const auto own = static_cast<int64_t>(c.x().dtype());
        const Value k = g.scalar(static_cast<double>(c.attrs().i("k")), DType::i64);
        const Value ones =
            full(g, c.x().dims(), 1.0, static_cast<DType>(c.attrs().i("dtype", own)));
        const Value upper = g.emit1("Trilu", {ones, k}, {{"upper", int64_t{1}}});
        return g.emit1("Trilu", {upper, k}, {{"upper", int64_t{0}}});
      });
}

void register_pad(OpSet& ops) {
  ops.op("Pad")
      .in("x")
      .in("pads", kInt64, "I")
      .host()
      .in_optional("value")
      .in_optional("axes", kIndex, "A")
      .host()
      .out("y")
      .since(11)
      .attr("mode", std::string("constant"))
      .shape(infer_pad)
      .differentiable_inputs({0})
      .gradient(pad_gradient);
  // The gradient of Pad in modes reflect, edge and wrap: each padded element adds to its source.
  ops.op("ort::PadGrad")
      .in("dy")
      .in("pads", kInt64, "I")
      .host()
      .in_optional("axes", kIndex, "A")
      .host()
      .out("dx")
      .attr_required("dims")
      .attr("mode", std::string("reflect"))
      .shape(infer_pad_grad);
}

}  // namespace

static void register_slice(OpSet& ops) {
  register_blocks(ops);
  register_pad(ops);
  ops.op("Slice")
      .in("x")
      .in("starts", kIndex, "I")
      .host()
      .in("ends", kIndex, "I")
      .host()
      .in_optional("axes", kIndex, "I")
      .host()
      .in_optional("steps", kIndex, "I")
      .host()
      .out("y")
      .since(10)
      .attr_ours("inside")  // the bounds lie inside the axis: a fact
      .shape(infer_slice)
      .differentiable_inputs({0})
      .gradient(slice_gradient);
  // Zeros of shape `dims` with dy written at [starts::steps] along axes.
  ops.op("ort::SliceGrad")
      .in("dy")
      .in("starts", kIndex, "I")
      .host()
      .in_optional("axes", kIndex, "I")
      .host()
      .in_optional("steps", kIndex, "I")
      .host()
      .out("dx")
      .attr_required("dims")
      .shape(dims_attr(0));
  ops.op("Trilu")
      .in("x")
      .in_optional("k", kInt64, "I")
      .host()
      .out("y")
      .since(14)
      .attr("upper", int64_t{1})
      .shape([](InferContext& c) {
        c.require(!c.ranked(0) || c.rank(0) >= 2,
                  "the input has shape {}, expected at least 2 axes",
                  c.ranked(0) ? c.dims(0) : Dims{});
        same_dims(c, 0, 0);
        c.assume_scalar(1, "elements of k");
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        return b.graph().emit1("Trilu", {b.dy(), b.x(1)}, {{"upper", b.attrs().i("upper")}});
      });
}

const Family<OpSet> kSliceOps("ops", "slice", register_slice);

}  // namespace ort
