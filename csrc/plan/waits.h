// Which steps wait for which, where a plan has more than one queue: a pure function of the memory
// that steps read and write.
#pragma once

#include <vector>

#include "csrc/plan/plan.h"

namespace ort {

// By step: the earlier steps on other queues whose work it must come after. The host is a queue of
// its own, which is never ahead: what it has run is done, and what waits for one of its steps needs
// no event.
std::vector<std::vector<int>> waits_of(const Plan& plan, const Placement& placement);

// Adds them to the plan's steps from the first on, beside those of another placement.
void order_streams(Plan& plan, const Placement& placement, size_t first = 0);

}  // namespace ort
