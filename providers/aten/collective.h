// Kernels of the aten provider: a collective's start, and the wait for it. Prepared by
// provider.cpp.
#pragma once

#include "providers/provider.h"

namespace ort::aten {

Verdict is_collective(const Node& node);
std::unique_ptr<Kernel> prepare_collective(const Node& node, const Binding& binding);

}  // namespace ort::aten
