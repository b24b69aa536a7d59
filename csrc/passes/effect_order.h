// What must wait for what because of effects, where no value says so.
#pragma once

#include <functional>

#include "csrc/graph/graph.h"

namespace ort {

// f(first, then) for nodes of which the later must run after the earlier; what follows from two of
// these by a third is left out.
void each_in_effect_order(const Graph& graph,
                          const std::function<void(const Node& first, const Node& then)>& f);

}  // namespace ort
