// The lists of rules that simplify, and those that recompose what users wrote by hand.
#pragma once

#include "csrc/passes/rule.h"

namespace ort {

const Rules& simplify_rules();
const Rules& quantized_rules();              // any graph
const Rules& recompose_rules(const OpSet&);  // graphs without gradients only

}  // namespace ort
