// From a captured graph to standard ONNX.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// Replaces every node outside ai.onnx by standard ones: definitions are expanded, symbolic sizes
// become Shape arithmetic on the inputs. What has no standard form is an error naming op and
// module.
void standardise(Graph& graph);

}  // namespace ort
