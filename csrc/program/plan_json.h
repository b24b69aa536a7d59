// A plan as JSON: what the graph view and `make replay` read out of a dump.
#pragma once

#include <string>

#include "csrc/plan/lowered_graph.h"
#include "csrc/plan/training_plan.h"

namespace ort {

// {"symbols", "arena", "retained", "separate" (bytes), "forward_steps", "steps", "values",
//  "refusals"}: steps with their nodes' ops and results, values as [offset, bytes, first, last].
std::string plan_json(const LoweredGraph& lowered, const TrainingPlan& plan,
                      const Symbols& symbols);

}  // namespace ort
