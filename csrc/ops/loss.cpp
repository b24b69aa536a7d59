// Losses over class indices.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

// logits [N, C, D1..] or [C]; one value for each target, or a scalar.
void infer_cross_entropy(InferContext& c) {
  if (!c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  if (c.ranked(0))
    c.require(c.rank(0) == c.rank(1) + 1, "logits have shape {}, target has shape {}, expected logits "
              "[N, C, D1..] and target [N, D1..]", c.dims(0), c.dims(1));
  const std::string& reduction = c.attrs().s("reduction");
  c.require(reduction == "none" || reduction == "sum" || reduction == "mean",
            "reduction is '{}', expected none, sum or mean", reduction);
  c.out(0, c.dtype(), reduction == "none" ? c.dims(1) : Dims{});
  c.out(1, c.dtype(), c.dims(1));
}

Outputs cross_entropy_gradient(const Backward& b) {
  check(!b.dy(1), "[ort::CrossEntropy] no gradient flows through log_sum_exp");
  const std::vector<Value> in{b.dy(), b.x(0), b.x(1), b.y(1), b.has(2) ? b.x(2) : Value{}};
  return b.graph().emit("ort::CrossEntropyGrad", in, b.attrs(), 1);
}

OpSchema& cross_entropy_attrs(OpSchema& schema) {
  return schema.attr("ignore_index", int64_t{-100}).attr("reduction", std::string("mean"))
      .attr("label_smoothing", 0.0);
}

}  // namespace

void register_loss(OpSet& ops) {
  cross_entropy_attrs(ops.op("ort::CrossEntropy").in("logits", kFloating).in("target", kIndex, "I")
      .in_optional("weight", kFloating).out("loss").out("log_sum_exp"))
      .shape(infer_cross_entropy).differentiable_inputs({0}).gradient(cross_entropy_gradient);
  cross_entropy_attrs(ops.op("ort::CrossEntropyGrad").in("dloss", kFloating).in("logits", kFloating)
      .in("target", kIndex, "I").in("log_sum_exp", kFloating).in_optional("weight", kFloating).out("dlogits"))
      .shape(like(1));
}

}  // namespace ort
