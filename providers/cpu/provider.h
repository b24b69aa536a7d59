// The CPU provider: oneDNN, tile programs and kernels of our own. Families register their kernels.
#pragma once

#include "providers/kernel_table.h"

namespace ort::cpu {

const KernelTable& kernel_table();

}  // namespace ort::cpu
