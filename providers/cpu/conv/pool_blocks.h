// Pools over channel blocks, what pool.cpp asks for first. Null where x, or dy, does not come so or
// what is made may not lie so.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

std::unique_ptr<Kernel> max_pool_blocks(const Request& r);
std::unique_ptr<Kernel> max_pool_grad_blocks(const Request& r);
std::unique_ptr<Kernel> average_pool_blocks(const Request& r);
std::unique_ptr<Kernel> average_pool_grad_blocks(const Request& r);

}  // namespace ort::cpu
