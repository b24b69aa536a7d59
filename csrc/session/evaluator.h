// The Evaluator that a provider gives: one node, concrete tensors.
#pragma once

#include "csrc/graph/schema.h"
#include "providers/provider.h"

namespace ort {

class ProviderEvaluator : public Evaluator {
 public:
  explicit ProviderEvaluator(const Provider& provider) : provider_(provider) {}
  Verdict can_evaluate(const Node& node) const override;
  std::vector<Tensor> evaluate(const Node& node, std::span<const Tensor> in) override;

 private:
  const Provider& provider_;
};

}  // namespace ort
