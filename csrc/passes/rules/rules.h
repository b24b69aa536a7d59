// The rules, one subject a file; simplify.cpp and fuse.cpp list them in their order.
#pragma once

#include "csrc/passes/rule.h"

namespace ort::rules {

// identity.cpp: arithmetic that changes nothing
Rule add_zero();
Rule sub_zero();
Rule mul_one();
Rule div_one();
Rule pow_one();
Rule pow_two();
Rule double_negation();
Rule add_negative();
Rule same_cast();
Rule identity();

// movement.cpp: views and transposes that cancel
Rule same_shape_reshape();
Rule reshape_of_reshape();
Rule squeeze_as_reshape();
Rule unsqueeze_as_reshape();
Rule flatten_as_reshape();
Rule same_shape_expand();
Rule transpose_of_transpose();
Rule identity_transpose();

// attention.cpp: heads are read where the projections leave them
Rule attention_of_transposed();

// activation.cpp: activations written by hand
Rule gelu_from_erf();
Rule gelu_from_erf_half_outside();
Rule gelu_from_tanh();
Rule swish_from_sigmoid();
Rule reciprocal_of_sqrt();

// norm.cpp: normalisations written by hand
Rule rms_norm_from_parts();
Rule layer_norm_from_parts();

// matmul.cpp: products with transposes, bias and activation
Rule matmul_transposed_right();
Rule matmul_transposed_left();
Rule matmul_bias();
Rule gemm_as_matmul();
Rules linear_activations();

}  // namespace ort::rules
