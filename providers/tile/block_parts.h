// A region over values that lie in blocks of channels, as [N, C / b, spatial axes.., b]. What has
// one number for each channel lies row-major: it is made before the loop over the elements, or of
// their sums after it.
#pragma once

#include <optional>
#include <vector>

#include "providers/provider.h"
#include "providers/tile/region.h"

namespace ort::tile {

struct Parts {
  std::vector<Region> regions;  // in the order in which they run
  size_t elements = 0;          // which of them runs over the elements
};

// nullopt where its nodes cannot run so.
std::optional<Parts> split_for_blocks(const Region& region, const RegionLayout& layout);

// Whether an operand has all elements, or varies over the channels or over the positions alone.
bool fits_blocks(const Sizes& sizes, const Sizes& space);
// The sizes of an operand over the space of these sizes, both as [N, C / b, positions, b].
Sizes in_blocks(const Sizes& sizes, const Sizes& space, int64_t block);

}  // namespace ort::tile
