// Reading and writing by index tensors.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

void infer_gather(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0));
  Dims dims(c.dims(0).begin(), c.dims(0).begin() + axis);
  dims.insert(dims.end(), c.dims(1).begin(), c.dims(1).end());
  dims.insert(dims.end(), c.dims(0).begin() + axis + 1, c.dims(0).end());
  c.out(0, c.dtype(), std::move(dims));
  const auto known = c.contents(0);
  const auto picks = c.ints(1);
  if (!known || !picks || c.rank(0) != 1) return;
  Dims chosen;
  for (int64_t at : *picks) {
    const int64_t size = static_cast<int64_t>(known->size());
    c.require(at >= -size && at < size, "index {} is out of range for size {}", at, size);
    chosen.push_back((*known)[static_cast<size_t>(at < 0 ? at + size : at)]);
  }
  c.out_contents(0, std::move(chosen));
}

Value gather_gradient(const Backward& b) {
  return b.graph().emit1("ort::GatherGrad", {b.dy(), b.x(1)},
                         {{"axis", b.attrs().i("axis")}, {"dims", b.x(0).dims()}});
}

void register_gather(OpSet& ops) {
  ops.op("Gather")
      .in("x")
      .in("indices", kIndex, "I")
      .out("y")
      .since(11)
      .attr("axis", int64_t{0})
      .shape(infer_gather)
      .differentiable_inputs({0})
      .gradient(gather_gradient);
  ops.op("ort::Embedding")
      .in("weight", kFloating)
      .in("indices", kIndex, "I")
      .out("y")
      .attr("padding_idx", int64_t{-1})
      .shape([](InferContext& c) {
        if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
        c.require(c.rank(0) == 2, "weight has shape {}, expected [V, D]", c.dims(0));
        Dims dims = c.dims(1);
        dims.push_back(c.dims(0)[1]);
        c.out(0, c.dtype(), std::move(dims));
      })
      .defined_as([](Value weight, Value indices) {
        return weight.graph->emit1("Gather", {weight, indices});
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        return b.graph().emit1("ort::GatherGrad", {b.dy(), b.x(1)},
                               {{"axis", int64_t{0}},
                                {"dims", b.x(0).dims()},
                                {"padding_idx", b.attrs().i("padding_idx")}});
      });
  // Zeros of shape `dims`; each slice of dy along axis is added at its index, padding_idx left out.
  ops.op("ort::GatherGrad")
      .in("dy", kFloating)
      .in("indices", kIndex, "I")
      .out("dx")
      .attr("axis", int64_t{0})
      .attr("padding_idx", int64_t{-1})
      .attr_required("dims")
      .shape(dims_attr(0));
}

// Indices of x's rank, and beside the axis no larger than x.
void fits_elements(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return;
  const auto axis = static_cast<size_t>(c.axis(c.attrs().i("axis"), c.rank(0)));
  const Dims &x = c.dims(0), &indices = c.dims(1);
  c.require(x.size() == indices.size(), "x has shape {}, indices have shape {}, expected one rank",
            x, indices);
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == axis) continue;
    const bool fits = !x[d].value() || !indices[d].value() || *indices[d].value() <= *x[d].value();
    c.require(fits, "indices of shape {} exceed x of shape {}", indices, x);
    c.assume(at_least(x[d], indices[d]), "size of x");
  }
}

// The axes of x that one row of the indices names, after `batch` shared ones; 0: not known.
size_t named_axes(InferContext& c, int64_t batch) {
  if (!c.ranked(0) || !c.ranked(1)) return 0;
  const Dims &x = c.dims(0), &indices = c.dims(1);
  c.require(batch >= 0 && batch < c.rank(0) && batch < c.rank(1),
            "batch_dims is {}, x has rank {}, indices have rank {}", batch, c.rank(0), c.rank(1));
  const auto depth = indices.back().value();
  if (!depth) return 0;
  c.require(*depth >= 1 && *depth <= c.rank(0) - batch,
            "indices have shape {}: {} axes, x has rank {}", indices, batch + *depth, c.rank(0));
  for (size_t d = 0; d < static_cast<size_t>(batch); ++d) {
    const bool fits = may_be_equal(x[d], indices[d]);
    c.require(fits, "batch axes of indices {} and x {} differ", indices, x);
    c.assume(equal_sizes(indices[d], x[d]), "batch axes");
  }
  return static_cast<size_t>(batch + *depth);
}

// The shape of what the rows of the indices name.
Dims named_slices(InferContext& c, size_t taken) {
  Dims dims(c.dims(1).begin(), c.dims(1).end() - 1);
  dims.insert(dims.end(), c.dims(0).begin() + static_cast<int64_t>(taken), c.dims(0).end());
  return dims;
}

// Indices [B1.., .., K] of slices after `batch` shared axes as [B1.., .., batch + K], of all axes.
Value with_batch_positions(Value indices, int64_t batch) {
  Dims rows = indices.dims();
  rows.back() = 1;
  std::vector<Value> columns;
  for (size_t axis = 0; axis < static_cast<size_t>(batch); ++axis) {
    Dims along(rows.size(), Dim(1));
    along[axis] = rows[axis];
    columns.push_back(expand(reshape(positions(*indices.graph, rows[axis]), along), rows));
  }
  if (columns.empty()) return indices;
  columns.push_back(indices);
  return concat(columns, -1);
}

void register_gather_elements(OpSet& ops) {
  ops.op("GatherElements")
      .in("x")
      .in("indices", kIndex, "I")
      .out("y")
      .since(11)
      .attr("axis", int64_t{0})
      .shape([](InferContext& c) {
        c.out(0, c.dtype(), c.type(1).dims);
        fits_elements(c);
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        const std::vector<Value> in{zeros_like(b.x()), b.x(1), b.dy()};
        return b.graph().emit("ScatterElements", in,
                              {{"axis", b.attrs().i("axis")}, {"reduction", std::string("add")}});
      });
  ops.op("GatherND")
      .in("x")
      .in("indices", kInt64, "I")
      .out("y")
      .since(12)
      .attr("batch_dims", int64_t{0})
      .shape([](InferContext& c) {
        const size_t taken = named_axes(c, c.attrs().i("batch_dims"));
        if (taken == 0) return c.out(0, c.dtype(), std::nullopt);
        c.out(0, c.dtype(), named_slices(c, taken));
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        const Value at = with_batch_positions(b.x(1), b.attrs().i("batch_dims"));
        const std::vector<Value> in{zeros_like(b.x()), at, b.dy()};
        return b.graph().emit("ScatterND", in, {{"reduction", std::string("add")}});
      });
}

// A scatter's gradient, and the nodes of its kind that it needs.
class ScatterGradient {
 public:
  ScatterGradient(const Backward& b, std::string gather, Attrs attrs)
      : b_(b), gather_(std::move(gather)), attrs_(std::move(attrs)) {}

  Outputs gradients() const {
    const std::string& reduction = b_.attrs().s("reduction");
    if (reduction == "mul") return of_product();
    if (reduction == "max" || reduction == "min") return of_extremum();
    const Value rest =
        reduction == "none" ? scattered(b_.dy(), zeros_like(b_.x(2)), "none") : b_.dy();
    return {rest, Value{}, gathered(b_.dy())};
  }

 private:
  Value scattered(Value x, Value updates, const char* reduction) const {
    Attrs attrs = b_.attrs();
    attrs.set("reduction", std::string(reduction));
    return b_.graph().emit1(b_.node().op, {x, b_.x(1), updates}, attrs);
  }
  Value gathered(Value x) const { return b_.graph().emit1(gather_, {x, b_.x(1)}, attrs_); }

  // A factor's slope is the product without it: y / factor, or where it alone of a place's updates
  // is zero the product with one instead of it. Two zeros at a place leave none.
  Outputs of_product() const {
    const Value x = b_.x(0), u = b_.x(2), one = number(1.0, x), none = number(0.0, x);
    const Value some = where(equal(x, none), one, x), is_zero = equal(u, none);
    const Value zeros = scattered(zeros_like(x), cast(is_zero, x.dtype()), "add");
    const Value alone = logical_and(is_zero, equal(gathered(zeros), one));
    const Value others = scattered(x, where(alone, one, u), "mul");
    const Value slope = where(alone, gathered(b_.dy() * others),
                              gathered(b_.dy() * b_.y()) / where(is_zero, one, u));
    return {b_.dy() * scattered(some, u, "mul") / some, Value{}, slope};
  }

  // What ties shares in equal parts, as in torch.
  Outputs of_extremum() const {
    const Value x = b_.x(0), u = b_.x(2);
    const Value x_is = cast(equal(x, b_.y()), x.dtype());
    const Value u_is = cast(equal(u, gathered(b_.y())), x.dtype());
    const Value share = b_.dy() / scattered(x_is, u_is, "add");
    return {x_is * share, Value{}, u_is * gathered(share)};
  }

  const Backward& b_;
  std::string gather_;
  Attrs attrs_;
};

void register_scatter(OpSet& ops) {
  ops.op("ScatterElements")
      .in("x")
      .in("indices", kIndex, "I")
      .in("updates")
      .out("y")
      .since(11)
      .attr("axis", int64_t{0})
      .attr("reduction", std::string("none"))
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        fits_elements(c);
        if (c.ranked(1)) expect_dims(c, 2, c.dims(1));
      })
      .differentiable_inputs({0, 2})
      .gradient([](const Backward& b) {
        return ScatterGradient(b, "GatherElements", {{"axis", b.attrs().i("axis")}}).gradients();
      });
  ops.op("ScatterND")
      .in("x")
      .in("indices", kInt64, "I")
      .in("updates")
      .out("y")
      .since(11)
      .attr("reduction", std::string("none"))
      .shape([](InferContext& c) {
        const size_t taken = named_axes(c, 0);
        c.out(0, c.dtype(), taken == 0 ? std::nullopt : c.type(0).dims);
        if (taken > 0) expect_dims(c, 2, named_slices(c, taken));
      })
      .differentiable_inputs({0, 2})
      .gradient([](const Backward& b) { return ScatterGradient(b, "GatherND", {}).gradients(); });
}

void register_lookup(OpSet& ops) {
  // The first sequence_lens[b] steps of each sequence in reverse order, the rest as they are.
  ops.op("ReverseSequence")
      .in("x")
      .in("sequence_lens", kInt64, "I")
      .out("y")
      .since(10)
      .attr("batch_axis", int64_t{1})
      .attr("time_axis", int64_t{0})
      .shape([](InferContext& c) {
        const int64_t batch = c.attrs().i("batch_axis"), time = c.attrs().i("time_axis");
        c.require((batch == 0 && time == 1) || (batch == 1 && time == 0),
                  "batch_axis is {} and time_axis {}, expected 0 and 1", batch, time);
        c.require(!c.ranked(0) || c.rank(0) >= 2, "x has shape {}, expected at least 2 axes",
                  c.ranked(0) ? c.dims(0) : Dims{});
        same_dims(c, 0, 0);
        if (c.ranked(0)) expect_dims(c, 1, {c.dims(0)[static_cast<size_t>(batch)]});
      })
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        return b.graph().emit1("ReverseSequence", {b.dy(), b.x(1)}, b.attrs());
      });
  ops.op("OneHot")
      .in("indices", kNumeric, "I")
      .in("depth", kNumeric, "D")
      .host()
      .in("values")
      .out("y")
      .since(11)
      .attr("axis", int64_t{-1})
      .shape([](InferContext& c) {
        c.assume_scalar(1, "elements of depth");
        expect_dims(c, 2, {2});
        if (!c.ranked(0)) return c.out(0, c.dtype(2), std::nullopt);
        Dims dims = c.dims(0);
        const int64_t axis = c.axis(c.attrs().i("axis"), c.rank(0) + 1);
        const auto depth = c.contents(1);
        const bool known = depth && depth->size() == 1;
        if (known) c.assume(at_least((*depth)[0], 0), "depth");
        dims.insert(dims.begin() + axis, known ? (*depth)[0] : c.fresh());
        c.out(0, c.dtype(2), std::move(dims));
      })
      .not_differentiable();
}

}  // namespace

static void register_index(OpSet& ops) {
  register_gather(ops);
  register_gather_elements(ops);
  register_scatter(ops);
  register_lookup(ops);
}

const Family<OpSet> kIndexOps("ops", "index", register_index);

}  // namespace ort
