// What a plan costs: before it runs, for sessions that limit it; of each step, for reports.
#pragma once

#include <span>

#include "csrc/plan/plan.h"

namespace ort {

// Bytes of the arenas and of the caller's outputs: what a run of it makes.
size_t bytes_of(const Plan& plan);
// Elements read and written, and of products the multiplications: the order of magnitude.
double estimated_operations(const LoweredGraph& lowered, const Symbols& symbols);

// Of one step: arithmetic that its ops' entries tell, bytes of its operands, each once, and these
// as text: float32[8, 128].
struct StepEstimate {
  double operations = 0, bytes = 0;
  std::vector<std::string> in{}, out{};
};
StepEstimate estimate(const Plan& plan, const Step& step, const LoweredGraph& lowered,
                      const Symbols& symbols);

}  // namespace ort
