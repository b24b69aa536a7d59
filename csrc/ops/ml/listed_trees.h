// Trees as TreeEnsembleClassifier and TreeEnsembleRegressor list them.
#pragma once

#include "csrc/ops/ml/forest.h"

namespace ort::ml {

// What the two ops name otherwise: "class" or "target".
struct ListedTrees {
  const Attrs& attrs;
  std::string kind;
  int64_t n_targets;

  // A list of floats, or the same "_as_tensor".
  std::vector<double> numbers(const std::string& name) const;
  Forest forest() const;
};

}  // namespace ort::ml
