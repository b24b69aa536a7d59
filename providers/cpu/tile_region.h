// Tile programs of graph regions: which nodes fit, which fit together, and the program of a region.
#pragma once

#include <span>

#include "providers/provider.h"

namespace ort::cpu {

Verdict fits_tile(const Node& node);
bool fit_together(std::span<Node* const> nodes);
// Its inputs leave out what the program has as immediates: scalars, axes, shapes.
Region tile_region(std::vector<Node*> nodes);
std::unique_ptr<Kernel> prepare_tile(const Region& region, const Binding& binding);

}  // namespace ort::cpu
