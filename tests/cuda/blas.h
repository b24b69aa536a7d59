// cuBLASLt's functions of the double: descriptors are judged by cublasLt.h's rules, then a product
// is computed plainly, late.
#pragma once

#include "providers/cuda/api.h"

namespace cuda_double {

void fill_blas(ort::cuda::Api& table);
int products();  // queued so far

}  // namespace cuda_double
