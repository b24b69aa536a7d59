// Softmax and its relatives over one axis.
#include <algorithm>

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

}  // namespace

void register_softmax(OpSet& ops) {
  softmax_like(ops, "Softmax")
      .defined_as([](const Call& c) {
        const std::vector<int64_t> axis{c.attrs().i("axis")};
        const Value e = exp(c.x() - reduce_max(c.x(), axis));
        return e / reduce_sum(e, axis);
      })
      .wide_gradient([](const Backward& b) {
        return b.y() * (b.dy() - reduce_sum(b.dy() * b.y(), {b.attrs().i("axis")}));
      });
  softmax_like(ops, "LogSoftmax")
      .defined_as([](const Call& c) {
        const std::vector<int64_t> axis{c.attrs().i("axis")};
        const Value shifted = c.x() - reduce_max(c.x(), axis);
        return shifted - log(reduce_sum(exp(shifted), axis));
      })
      .wide_gradient([](const Backward& b) {
        return b.dy() - exp(b.y()) * reduce_sum(b.dy(), {b.attrs().i("axis")});
      });
  softmax_like(ops, "Hardmax").not_differentiable();
}

}  // namespace ort
