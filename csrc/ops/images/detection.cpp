// The last steps of detectors.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

void infer_nms(InferContext& c) {
  for (size_t i = 0; i < 2; ++i)
    c.require(!c.ranked(i) || c.rank(i) == 3, "{} have shape {}, expected {}",
              i == 0 ? "boxes" : "scores", c.ranked(i) ? c.dims(i) : Dims{},
              i == 0 ? "[batch, N, 4]" : "[batch, classes, N]");
  if (c.ranked(0)) expect_dims(c, 0, {c.dims(0)[0], c.dims(0)[1], 4});
  if (c.ranked(0) && c.ranked(1)) expect_dims(c, 1, {c.dims(0)[0], c.dims(1)[1], c.dims(0)[1]});
  c.out(0, DType::i64, Dims{c.fresh(), 3});
}

}  // namespace

static void register_detection(OpSet& ops) {
  // Of each class the boxes with the best scores, without those that overlap a better one.
  ops.op("NonMaxSuppression")
      .in("boxes", bit(DType::f32))
      .in("scores", bit(DType::f32))
      .in_optional("max_output_boxes_per_class", kInt64, "I")
      .in_optional("iou_threshold", bit(DType::f32))
      .in_optional("score_threshold", bit(DType::f32))
      .out("selected_indices", kInt64, "I")
      .attr("center_point_box", int64_t{0})
      .since(10)
      .allocates()
      .shape(infer_nms)
      .not_differentiable();
}

const Family<OpSet> kDetectionOps("ops", "detection", register_detection);

}  // namespace ort
