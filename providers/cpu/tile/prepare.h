// The kernel of a tile region: over row-major operands, or over those that lie otherwise.
#pragma once

#include "providers/provider.h"

namespace ort::cpu {

std::unique_ptr<Kernel> prepare_tile(const Region& region, const Binding& binding);

}  // namespace ort::cpu
