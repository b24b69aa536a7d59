// The run loop.
#pragma once

#include "csrc/runtime/frame.h"
#include "csrc/runtime/profile.h"

namespace ort {

// Runs steps [first, last) of the plan on the frame; all of them by default.
void run(const Plan& plan, Frame& frame, size_t first = 0, size_t last = SIZE_MAX,
         Profile* profile = nullptr);

}  // namespace ort
