// The kernels of a lowered graph for one binding.
#pragma once

#include "csrc/plan/values.h"

namespace ort {

// One for each claim, in the order in which they run. What providers want compiled is compiled in
// parallel, once for a key, and then linked. An error names the node.
std::vector<std::unique_ptr<Kernel>> prepare_kernels(const LoweredGraph& lowered,
                                                     const BoundValues& values);

}  // namespace ort
