// Tile programs of graph regions: which nodes fit, which fit together, and how their values lie
// over the iteration space.
#pragma once

#include <span>

#include "providers/provider.h"
#include "providers/tile/program.h"

namespace ort::tile {

// How a region's values lie over its iteration space, whose last `cols` axes are the columns.
struct RegionLayout {
  Dims dims;                        // of the iteration space
  int64_t cols = -1;                // -1: no reduction asks for a split
  DType element = DType::f32;       // what the region computes in
  std::map<ValueId, Space> spaces;  // of the values that the region makes
};

// Over axes [begin, end) of an iteration space: do all of them vary with dims, none, or some?
enum class Cover : uint8_t { none, all, some, alien };
Cover cover(const Dims& dims, const Dims& space, size_t begin, size_t end);

Verdict fits(const Node& node);
std::optional<RegionLayout> layout_of(std::span<Node* const> nodes);
bool fit_together(std::span<Node* const> nodes);
// Its inputs leave out what the program has as immediates: scalars, axes, shapes.
Region region_of(std::vector<Node*> nodes);
std::string name_of(const Region& region);

}  // namespace ort::tile
