// The lists of rules that simplify, and those that recompose what users wrote by hand.
#pragma once

#include "csrc/passes/rule.h"

namespace ort {

const Rules& simplify_rules();  // any graph
// Graphs without gradients only.
const Rules& quantized_rules();
const Rules& recompose_rules(const OpSet&);

}  // namespace ort
