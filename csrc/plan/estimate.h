// What a plan costs before it runs, for sessions that limit it.
#pragma once

#include "csrc/plan/plan.h"

namespace ort {

// Bytes of the arenas and of the caller's outputs: what a run of it makes.
size_t bytes_of(const Plan& plan);
// Elements read and written, and of products the multiplications: the order of magnitude.
double estimated_operations(const LoweredGraph& lowered, const Symbols& symbols);

}  // namespace ort
