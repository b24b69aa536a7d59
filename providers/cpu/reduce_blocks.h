// The sum of each channel over the batch and all positions, where x lies as blocks of channels:
// what reduce.cpp asks for first. Null where it does not lie so.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

std::unique_ptr<Kernel> sum_of_blocks(const Request& r);

}  // namespace ort::cpu
