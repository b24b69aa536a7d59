// The gradient of an op that owns graphs: each of them is differentiated, and the node keeps a
// history that its gradient reads.
#pragma once

#include <vector>

#include "csrc/graph/schema.h"

namespace ort::grad {

// Of If, Loop and Scan: gives the node its history as one output more, and emits its gradient.
// `dy`: by output, absent ones are zero; `needs`: by input. By input: the gradient, where one
// flows.
Outputs gradient_of_bodies(Node& node, const std::vector<Value>& dy,
                           const std::vector<bool>& needs);

}  // namespace ort::grad
