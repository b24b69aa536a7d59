// Transforms of scores, as onnx's reference has them.
#include "csrc/ops/ml/scores.h"

#include <numbers>

namespace ort::ml {
namespace {

// Softmax of what is not zero; zeros stay zeros.
Value softmax_zero(Value scores) {
  constexpr double kZero = 1e-7;
  const Value most = reduce_max(scores, {1});
  const Value powers = where(abs(scores) > kZero, exp(scores - most), scores * exp(-most));
  const Value sum = reduce_sum(powers, {1});
  const Value none = equal(sum, number(0.0, sum));
  return where(none, number(0.5, sum), powers / where(none, number(1.0, sum), sum));
}

// sqrt(2) erfinv(2 x - 1), by Winitzki's approximation of erfinv.
Value probit(Value x) {
  constexpr double kShape = 0.147;
  const Value t = x * 2.0 - 1.0;
  const Value logarithm = log((1.0 - t) * (1.0 + t));
  const Value v = logarithm * 0.5 + 2.0 / (std::numbers::pi * kShape);
  const Value root = sqrt(sqrt(v * v - logarithm * (1.0 / kShape)) - v);
  return where(t < 0.0, -root, root) * std::numbers::sqrt2;
}

}  // namespace

Value transformed(Value scores, const std::string& name) {
  if (name == "NONE") return scores;
  if (name == "LOGISTIC") return sigmoid(scores);
  if (name == "SOFTMAX") return softmax(scores, 1);
  if (name == "SOFTMAX_ZERO") return softmax_zero(scores);
  check(name == "PROBIT",
        "post_transform is '{}', expected NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT", name);
  return probit(scores);
}

Value transformed_targets(Value scores, const std::string& name) {
  const Value made = transformed(scores, name);
  return scores.dim(1).is(1) && name != "PROBIT" ? scores : made;
}

Value chosen(Value scores, const Tensor& labels) {
  Graph& graph = *scores.graph;
  const Value best =
      graph.emit1("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  return graph.emit1("Gather", {graph.constant(labels), best});
}

Value both_classes(Value s, bool certain, const std::string& transform) {
  const bool complement = certain && (transform == "NONE" || transform == "PROBIT");
  return transformed(concat({complement ? 1.0 - s : -s, s}, 1), transform);
}

}  // namespace ort::ml
