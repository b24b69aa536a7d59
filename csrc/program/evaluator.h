// The Evaluator that a provider gives: one node, concrete tensors.
#pragma once

#include "csrc/graph/schema.h"
#include "providers/provider.h"

namespace ort {

class ProviderEvaluator : public Evaluator {
 public:
  // `quick`: who computes large tensors of whole numbers in its place, with the same bits.
  explicit ProviderEvaluator(const Provider& provider, std::vector<const Provider*> quick = {})
      : provider_(provider), quick_(std::move(quick)) {}
  Verdict can_evaluate(const Node& node) const override;
  std::vector<Tensor> evaluate(const Node& node, std::span<const Tensor> in) override;

 private:
  const Provider& who(const Node& node, std::span<const Tensor> in) const;

  const Provider& provider_;
  std::vector<const Provider*> quick_;
};

}  // namespace ort
