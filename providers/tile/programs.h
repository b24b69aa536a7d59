// The tile programs of a region: one for every binding where its dims decide how its operands lie,
// else one for each way that sizes make them lie. A new batch changes the numbers alone.
#pragma once

#include <memory>

#include "providers/provider.h"
#include "providers/tile/block_parts.h"
#include "providers/tile/program.h"

namespace ort::tile {

// What a kernel is made of.
struct BoundRegion {
  std::shared_ptr<const TileProgram> program;
  Extent extent;
};

// `block`: of channels, where the operands of all elements lie so; 0: row-major, or in any one
// order.
BoundRegion bind(const Region& region, const Binding& binding, int64_t block = 0);
// Whether, by its dims, its kernel may take what is not row-major.
bool takes_layouts(const Region& region);

// In the layout in which most of its operands come.
OperandLayouts shared_layouts(const Region& region, const Binding& binding);
// For blocks of channels.
const Parts& parts_of(const Region& region);

std::shared_ptr<void> make_programs();  // of a new region, for its `kept`: none yet
size_t programs_made();                 // in this process

}  // namespace ort::tile
