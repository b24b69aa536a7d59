// Linear models: products with coefficients that are attributes.
#include "csrc/ops/ml/scores.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

// x coefficients^T + intercepts of rows [N, F]: [N, `outputs`].
Value scores_of(Value rows, const Attrs& attrs, int64_t outputs) {
  const auto& coefficients = floats(attrs, "coefficients");
  const auto& intercepts = floats(attrs, "intercepts");
  const auto count = static_cast<int64_t>(coefficients.size());
  check(outputs > 0 && count > 0 && count % outputs == 0,
        "it has {} coefficients, expected as many for each of {}", count, outputs);
  check(may_be_equal(rows.dim(1), count / outputs),
        "it has {} coefficients for each of {}, X has {} features", count / outputs, outputs,
        rows.dim(1));
  check(intercepts.empty() || static_cast<int64_t>(intercepts.size()) == outputs,
        "it has {} intercepts, expected {}", intercepts.size(), outputs);
  Graph& graph = *rows.graph;
  const DType dtype = rows.dtype();
  const Value weights = graph.constant(tensor_of(coefficients, {outputs, count / outputs}, dtype));
  const Value y = matmul(rows, transpose(weights, {1, 0}));
  if (intercepts.empty()) return cast(y, DType::f32);
  return cast(y + graph.constant(tensor_of(intercepts, {outputs}, dtype)), DType::f32);
}

// Two labels may have one row of coefficients: that of the second class.
Outputs classify(const OpCall& c) {
  const Attrs& attrs = c.attrs();
  const Tensor labels = labels_of(attrs, "classlabels_ints", "classlabels_strings");
  const Value rows = rows_of(c.x());
  const size_t intercepts = floats(attrs, "intercepts").size();
  const auto features = rows.dim(1).value();
  const bool by_features =
      features && static_cast<int64_t>(floats(attrs, "coefficients").size()) == *features;
  const bool single = labels.count() == 2 && (intercepts == 1 || (intercepts == 0 && by_features));
  const std::string& transform = attrs.s("post_transform");
  const Value scores = scores_of(rows, attrs, single ? 1 : labels.count());
  if (!single) return {chosen(scores, labels), transformed(scores, transform)};
  return {chosen(concat({-scores, scores}, 1), labels), both_classes(scores, false, transform)};
}

Value regress(const OpCall& c) {
  const int64_t targets = c.attrs().i("targets");
  return transformed_targets(scores_of(rows_of(c.x()), c.attrs(), targets),
                             c.attrs().s("post_transform"));
}

}  // namespace

static void register_linear(OpSet& ops) {
  ops.op("ai.onnx.ml::LinearClassifier")
      .in("X", kInputs)
      .out("Y", kLabels, "T2")
      .dtype_by("classlabels_strings")
      .out("Z", bit(DType::f32), "Z")
      .attr_required("coefficients")
      .attr_optional("intercepts")
      .attr_optional("classlabels_ints")
      .attr_optional("classlabels_strings")
      .attr("multi_class", int64_t{0})  // of how it was trained: it changes no result
      .attr("post_transform", std::string("NONE"))
      .defined_as(classify);
  ops.op("ai.onnx.ml::LinearRegressor")
      .in("X", kInputs)
      .out("Y", bit(DType::f32), "Y")
      .attr_optional("coefficients")
      .attr_optional("intercepts")
      .attr("targets", int64_t{1})
      .attr("post_transform", std::string("NONE"))
      .defined_as(regress);
}

const Family<OpSet> kLinearOps("ops", "ml/linear", register_linear);

}  // namespace ort::ml
