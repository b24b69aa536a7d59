// The double without any run: memory that nobody has, work that is not done, code that NVRTC itself
// made or nobody.
#pragma once

#include "providers/cuda/api.h"

namespace cuda_double {

// With functions of the library at `nvrtc`, or, where it is null, some that only note the texts.
ort::cuda::Api without_runs(ort::cuda::Api table, const char* nvrtc, int arch);

}  // namespace cuda_double
