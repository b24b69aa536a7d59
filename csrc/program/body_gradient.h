// The gradients of If, Loop and Scan: trips are taken from the history, the last first.
#pragma once

#include "csrc/program/body_kernel.h"

namespace ort {

std::unique_ptr<BodyKernel> make_body_gradient(const Node& node, const CompileOptions& options);

}  // namespace ort
