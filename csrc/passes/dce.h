// Dead code elimination.
#pragma once

#include "csrc/graph/graph.h"

namespace ort {

// Removes nodes without effect whose outputs nobody reads; returns how many.
size_t remove_dead(Graph& graph);

}  // namespace ort
