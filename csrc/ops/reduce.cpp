// Reductions over axes (axes are an input, opset 18), arg-extrema, running sums and products,
// top-k.
#include <algorithm>
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// The axes a reduction removes: its second input, or all of them.
std::optional<std::vector<int64_t>> axes_of(const Node& node, int64_t rank) {
  std::vector<int64_t> axes;
  if (node.has_input(1)) {
    const auto& known = node.graph->contents(node.in[1]);
    if (!known) return std::nullopt;
    for (const Dim& axis : *known) {
      if (!axis.value()) return std::nullopt;
      check(*axis.value() >= -rank && *axis.value() < rank,
            "[{}] axis {} does not exist, the input has rank {}; {}", node.qualified(), axis, rank,
            node.describe());
      axes.push_back(*axis.value());
    }
  }
  if (axes.empty() && !node.attrs.i("noop_with_empty_axes")) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& axis : axes)
    if (axis < 0) axis += rank;
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

void infer_reduce(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  const auto axes = axes_of(c.node(), c.rank(0));
  const bool keep = c.attrs().i("keepdims") != 0;
  if (!axes) {
    if (!keep) return c.out(0, c.dtype(), std::nullopt);
    Dims unknown;
    for (int64_t i = 0; i < c.rank(0); ++i) unknown.push_back(c.fresh());
    return c.out(0, c.dtype(), std::move(unknown));
  }
  Dims dims;
  for (int64_t i = 0; i < c.rank(0); ++i) {
    const bool reduced = std::binary_search(axes->begin(), axes->end(), i);
    if (!reduced) dims.push_back(c.dims(0)[static_cast<size_t>(i)]);
    if (reduced && keep) dims.push_back(1);
  }
  c.out(0, c.dtype(), std::move(dims));
}

// A result of the reduction with its axes back as ones, so that it broadcasts against x.
Value restored(const Backward& b, Value reduced) {
  if (b.attrs().i("keepdims")) return reduced;
  return unsqueeze(reduced, *axes_of(b.node(), b.x().rank()));
}

std::vector<int64_t> reduced_axes(const Backward& b) {
  return *axes_of(b.node(), b.x().rank());
}

Value extremum_gradient(const Backward& b) {
  const Value hits = cast(equal(b.x(), restored(b, b.y())), b.x().dtype());
  return restored(b, b.dy()) * hits / reduce_sum(hits, reduced_axes(b));
}

// The product of the others, without dividing by a zero among them.
Value prod_gradient(const Backward& b) {
  const Value x = b.x(), none = number(0.0, x), one = number(1.0, x);
  const Value is_zero = equal(x, none);
  const auto axes = reduced_axes(b);
  const Value zeros = reduce_sum(cast(is_zero, x.dtype()), axes);
  const Value others = reduce("ReduceProd", where(is_zero, one, x), axes, true);
  const Value at_zero = where(equal(zeros, one), others, none);
  const Value elsewhere = where(equal(zeros, none), others / where(is_zero, one, x), none);
  return restored(b, b.dy()) * where(is_zero, at_zero, elsewhere);
}

OpSchema& reduction(OpSet& ops, std::string_view name, TypeSet types, int since) {
  return ops.op(name)
      .in("x", types)
      .in_optional("axes", kInt64, "A")
      .host()
      .out("y")
      .since(since)
      .attr("keepdims", int64_t{1})
      .attr("noop_with_empty_axes", int64_t{0})
      .cost([](const Sized& node) { return 8 * node.x(0); })
      .computes_in(DType::f32)
      .shape(infer_reduce)
      .differentiable_inputs({0});
}

using Reducing = std::function<Value(Value x, const std::vector<int64_t>& axes, bool keep)>;

// A reduction that is its definition; the definition reads the axes, so it is no pattern.
void derived(OpSet& ops, std::string_view name, Reducing form) {
  reduction(ops, name, kNumeric, 18).defined_as([form](const OpCall& c) {
    const bool keep = c.attrs().i("keepdims") != 0;
    const Value x = c.x();
    std::vector<int64_t> axes;
    if (c.has(1)) {
      const auto& known = c.graph().contents(c.x(1).id);
      for (size_t i = 0; known && i < known->size(); ++i)
        if ((*known)[i].value()) axes.push_back(*(*known)[i].value());
      check(known && axes.size() == known->size(),
            "the axes of a reduction are known only at run time");
    }
    if (axes.empty() && !c.attrs().i("noop_with_empty_axes")) axes = all_axes(x);
    return form(x, axes, keep);
  });
}

void register_derived(OpSet& ops) {
  derived(ops, "ReduceL1",
          [](Value x, const auto& axes, bool keep) { return reduce_sum(abs(x), axes, keep); });
  derived(ops, "ReduceSumSquare",
          [](Value x, const auto& axes, bool keep) { return reduce_sum(x * x, axes, keep); });
  derived(ops, "ReduceLogSum",
          [](Value x, const auto& axes, bool keep) { return log(reduce_sum(x, axes, keep)); });
  derived(ops, "ReduceL2", [](Value x, const auto& axes, bool keep) {
    return unary("ort::SafeSqrt", reduce_sum(x * x, axes, keep));
  });
  derived(ops, "ReduceLogSumExp", [](Value x, const auto& axes, bool keep) {
    const Value most = stop_gradient(reduce_max(x, axes, true));
    const Value top = where(unary("IsInf", most), number(0.0, most), most);  // inf - inf is NaN
    const Value sum = log(reduce_sum(exp(x - top), axes, true)) + top;
    return keep ? sum : squeeze(sum, axes);
  });
  // sqrt whose slope at zero is zero: the norm of a zero vector has subgradient zero, as in torch.
  // It is a factor: what comes in as infinite or NaN is NaN there.
  ops.op("ort::SafeSqrt")
      .in("x", kFloating)
      .out("y")
      .elementwise()
      .defined_as([](Value x) { return sqrt(x); })
      .gradient([](const Backward& b) {
        const Value none = number(0.0, b.y()), one = number(1.0, b.y());
        const Value flat = equal(b.y(), none);
        return b.dy() / (2.0 * where(flat, one, b.y())) * where(flat, none, one);
      });
}

void infer_arg(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, DType::i64, std::nullopt);
  Dims dims = c.dims(0);
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  c.assume(at_least(dims[static_cast<size_t>(axis)], 1), "size of the axis");
  if (c.attrs().i("keepdims"))
    dims[static_cast<size_t>(axis)] = 1;
  else
    dims.erase(dims.begin() + axis);
  c.out(0, DType::i64, std::move(dims));
}

void infer_top_k(InferContext& c) {
  c.assume_scalar(1, "elements of k");
  if (!c.ranked(0)) {
    c.out(0, c.dtype(), std::nullopt);
    return c.out(1, DType::i64, std::nullopt);
  }
  Dims dims = c.dims(0);
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  const auto k = c.contents(1);
  Dim& size = dims[static_cast<size_t>(axis)];
  if (k && k->size() == 1) {
    const Dim& count = (*k)[0];
    const bool fits = !count.value() ||
                      (*count.value() >= 0 && (!size.value() || *count.value() <= *size.value()));
    c.require(fits, "k is {}, axis {} of {} has size {}", count, axis, c.dims(0), size);
    c.assume(at_least(count, 0), "k");
    c.assume(at_least(size, count), "size of the axis");
    size = count;
  } else {
    size = c.fresh();
  }
  c.out(0, c.dtype(), dims);
  c.out(1, DType::i64, dims);
}

OpSchema& running(OpSet& ops, std::string_view name, int since) {
  return ops.op(name)
      .in("x", kNumeric)
      .in("axis", kIndex, "A")
      .host()
      .out("y")
      .since(since)
      .attr("exclusive", int64_t{0})
      .attr("reverse", int64_t{0})
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        c.assume_scalar(1, "elements of axis");
      })
      .differentiable_inputs({0});
}

// Running sums of x against the direction of the node.
Value sums_back(const Backward& b, Value x) {
  Attrs attrs = b.attrs();
  attrs.set("reverse", 1 - attrs.i("reverse"));
  return b.graph().emit1("CumSum", {x, b.x(1)}, attrs);
}

// Before the first zero of a line a slope is a product over x, at it a product without it, and
// behind it zero: every product there has that zero in it. Products with a zero are left out as in
// torch, which an infinity in them would make NaN.
Value cum_prod_gradient(const Backward& b) {
  Graph& g = b.graph();
  const Value x = b.x(), none = number(0.0, x), one = number(1.0, x);
  const Value is_zero = equal(x, none), counted = cast(is_zero, x.dtype());
  const Attrs inclusive{{"reverse", b.attrs().i("reverse")}};
  const Value up_to = g.emit1("CumSum", {counted, b.x(1)}, inclusive);
  const Value in_y = g.emit1("CumSum", {counted, b.x(1)}, b.attrs());
  const Value first = logical_and(is_zero, equal(up_to, one));
  const Value others = g.emit1("CumProd", {where(first, one, x), b.x(1)}, b.attrs());
  const Value before = sums_back(b, where(equal(in_y, none), b.dy() * b.y(), none));
  const Value at = sums_back(b, where(equal(in_y, one), b.dy() * others, none));
  return where(equal(up_to, none), before / where(is_zero, one, x), where(first, at, none));
}

void register_order(OpSet& ops) {
  for (const char* name : {"ArgMax", "ArgMin"})
    ops.op(name)
        .in("x", kNumeric)
        .out("y", kInt64, "I")
        .since(13)
        .attr("axis", int64_t{0})
        .attr("keepdims", int64_t{1})
        .attr("select_last_index", int64_t{0})
        .shape(infer_arg)
        .not_differentiable();
  running(ops, "CumSum", 14).gradient([](const Backward& b) { return sums_back(b, b.dy()); });
  running(ops, "CumProd", 26).wide_gradient(cum_prod_gradient);
  ops.op("TopK")
      .in("x", kNumeric)
      .in("k", kInt64, "K")
      .host()
      .out("values")
      .out("indices", kInt64, "I")
      .since(11)
      .attr("axis", int64_t{-1})
      .attr("largest", int64_t{1})
      .attr("sorted", int64_t{1})
      .shape(infer_top_k)
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        const std::vector<Value> in{zeros_like(b.x()), b.y(1), b.dy()};
        return b.graph().emit("ScatterElements", in,
                              {{"axis", b.attrs().i("axis")}, {"reduction", std::string("add")}});
      });
}

}  // namespace

static void register_reduce(OpSet& ops) {
  reduction(ops, "ReduceSum", kNumeric, 13).gradient([](const Backward& b) {
    return expand(restored(b, b.dy()), b.x().dims());
  });
  reduction(ops, "ReduceMean", kNumeric, 18).wide_gradient([](const Backward& b) {
    Graph& g = b.graph();
    Dim count = 1;
    for (const int64_t axis : reduced_axes(b)) count = count * b.x().dim(axis);
    const Value divisor = count.value() ? number(static_cast<double>(*count.value()), b.dy())
                                        : cast(g.size(count), b.dy().dtype());
    return expand(restored(b, b.dy() / divisor), b.x().dims());
  });
  reduction(ops, "ReduceMax", kNumeric | kBool, 18).wide_gradient(extremum_gradient);
  reduction(ops, "ReduceMin", kNumeric | kBool, 18).wide_gradient(extremum_gradient);
  reduction(ops, "ReduceProd", kNumeric, 18).wide_gradient(prod_gradient);
  // The smallest and the largest number of all of x, as scalars: one pass over memory where a
  // provider has a kernel.
  ops.op("ort::MinMax")
      .in("x", kNumeric)
      .out("min")
      .out("max")
      .cost([](const Sized& node) { return 2 * node.x(0); })
      .shape([](InferContext& c) {
        c.out(0, c.dtype(), Dims{});
        c.out(1, c.dtype(), Dims{});
      })
      .defined_as([](const OpCall& c) {
        const std::vector<int64_t> all = all_axes(c.x(0));
        return Outputs{reduce("ReduceMin", c.x(0), all, false), reduce_max(c.x(0), all, false)};
      });
  register_derived(ops);
  register_order(ops);
}

const Family<OpSet> kReduceOps("ops", "reduce", register_reduce);

}  // namespace ort
