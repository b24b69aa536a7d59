// A plan's own kernel: from one memory to another, or within one.
#pragma once

#include "csrc/plan/plan.h"

namespace ort {

// One of the two is the host, or both are one device.
std::unique_ptr<Kernel> copy_kernel(size_t bytes, const PlanDevice& from, const PlanDevice& to);

// The stream of the device on which what goes to the host, or comes from it, is copied.
int copy_stream(size_t bytes, bool to_host);

}  // namespace ort
