// The rules, one subject a file. Each file ends with its list, in the order that its rules need;
// simplify.cpp and fuse.cpp name the subjects in theirs.
#pragma once

#include "csrc/passes/rule.h"

namespace ort::rules {

Rules identity_rules();                 // arithmetic that changes nothing
Rules movement_rules();                 // views and transposes that cancel
Rules attention_rules();                // heads are read where the projections leave them
Rules activation_rules();               // activations written by hand
Rules norm_rules();                     // normalisations written by hand
Rules quantized_rules();                // products of integers between their scales
bool is_dequantized(const Node& node);  // what these look for, of constants too
Rules product_rules(const OpSet& ops);  // products with transposes, bias and activation
Rules conv_rules(const OpSet& ops);     // convolutions with batch norm, sum and activation
Rule pow_two();

}  // namespace ort::rules
