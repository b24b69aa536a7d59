// Inference where more is known of a graph than when it was prepared: a rank, a number.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// A size that a node named and that now follows from others is written out wherever it is named.
void infer_again(Graph& graph);

}  // namespace ort
