// Softmax and its relatives over one axis.
#include <algorithm>
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

void infer_axis(InferContext& c) {
  same_dims(c, 0, 0);
  if (c.ranked(0)) c.axis(c.attrs().i("axis"), std::max<int64_t>(c.rank(0), 1));
}

OpSchema& softmax_like(OpSet& ops, std::string_view name) {
  return ops.op(name)
      .in("x", kFloating)
      .out("y")
      .since(13)
      .attr("axis", int64_t{-1})
      .computes_in(DType::f32)
      .shape(infer_axis);
}

// One at the first of the largest, zero elsewhere.
Value hardmax(const OpCall& c) {
  const Value x = c.x();
  const int64_t axis = c.attrs().i("axis") + (c.attrs().i("axis") < 0 ? x.rank() : 0);
  const Value most = c.graph().emit1("ArgMax", {x}, {{"axis", axis}, {"keepdims", int64_t{1}}});
  const Value places = positions(c.graph(), x.dim(axis));
  std::vector<int64_t> after(static_cast<size_t>(x.rank() - 1 - axis));
  std::iota(after.begin(), after.end(), 1);
  return cast(equal(most, unsqueeze(places, after)), x.dtype());
}

}  // namespace

static void register_softmax(OpSet& ops) {
  softmax_like(ops, "Softmax")
      .defined_as([](const OpCall& c) {
        const std::vector<int64_t> axis{c.attrs().i("axis")};
        const Value e = exp(c.x() - reduce_max(c.x(), axis));
        return e / reduce_sum(e, axis);
      })
      .wide_gradient([](const Backward& b) {
        return b.y() * (b.dy() - reduce_sum(b.dy() * b.y(), {b.attrs().i("axis")}));
      });
  softmax_like(ops, "LogSoftmax")
      .defined_as([](const OpCall& c) {
        const std::vector<int64_t> axis{c.attrs().i("axis")};
        const Value shifted = c.x() - reduce_max(c.x(), axis);
        return shifted - log(reduce_sum(exp(shifted), axis));
      })
      .wide_gradient([](const Backward& b) {
        return b.dy() - exp(b.y()) * reduce_sum(b.dy(), {b.attrs().i("axis")});
      });
  softmax_like(ops, "Hardmax").defined_as(hardmax).not_differentiable();
}

const Family<OpSet> kSoftmaxOps("ops", "softmax", register_softmax);

}  // namespace ort
