// A kernel for halves made of one for float32: operands are widened once a call into scratch
// memory, and what it makes is rounded once.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

// `make` is asked for the float32 twin of the request; null where it has none.
std::unique_ptr<Kernel> widened(const Request& request, const Make& make);

}  // namespace ort::cpu
