// Whether what a plan's steps do to memory is ordered: judged by what a run does with streams and
// events, and not by how waits.cpp finds its waits.
#pragma once

#include <span>

#include "csrc/plan/plan.h"

namespace ort {

// Throws where two steps touch the same memory, one of them writes there, and the second does not
// come after the first: by their queue, by waits, or by what the host has waited for. `ends`: of
// the ranges of steps that are run one by one; a wait for a step of an earlier range is none.
// `from`: the first step whose scratch is where the placement says.
void verify_waits(const Plan& plan, const Placement& placement, std::span<const size_t> ends,
                  size_t from = 0);

}  // namespace ort
