// What classifiers and regressors make of their scores.
#pragma once

#include "csrc/ops/ml/attributes.h"

namespace ort::ml {

// post_transform of scores [N, C], by name: NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT.
// Refuses another name.
Value transformed(Value scores, const std::string& name);
// Of a single score onnxruntime applies PROBIT alone, and so do we.
Value transformed_targets(Value scores, const std::string& name);

// The label of the largest score of each row [N]; the first of equal ones.
Value chosen(Value scores, const Tensor& labels);

// Both scores of two classes from that of the second, s [N, 1]. Of probabilities (`certain`)
// [1 - s, s] under NONE and PROBIT, else [-s, s]; then the transform.
Value both_classes(Value s, bool certain, const std::string& transform);

}  // namespace ort::ml
