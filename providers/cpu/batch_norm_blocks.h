// Batch norm over values that lie in blocks of channels.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

// Null where x does not lie so, or what is made may not.
std::unique_ptr<Kernel> batch_norm_blocks(const Request& r);
std::unique_ptr<Kernel> batch_norm_grad_blocks(const Request& r);

}  // namespace ort::cpu
