// Binding a lowered graph to sizes.
#pragma once

#include "csrc/plan/buffer_assignment.h"

namespace ort {

// A plan but for the places of its values.
struct UnplacedPlan {
  std::unique_ptr<Plan> plan;
  BufferAssignment owned;
};
UnplacedPlan bind(const LoweredGraph& lowered, const Symbols& symbols);

// Shares and places the arenas' values, and orders the streams.
void place_values(UnplacedPlan& bound);

// All of it, for who runs every step in one go.
std::unique_ptr<Plan> make_plan(const LoweredGraph& lowered, const Symbols& symbols);

}  // namespace ort
