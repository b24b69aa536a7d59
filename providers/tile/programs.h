// The tile programs of a region: one for every binding where its dims decide how its operands lie,
// else one for each way that sizes make them lie. A new batch changes the numbers alone.
#pragma once

#include <memory>

#include "providers/provider.h"
#include "providers/tile/program.h"

namespace ort::tile {

// What a kernel is made of.
struct Bound {
  std::shared_ptr<const TileProgram> program;
  Extent extent;
};

Bound bind(const Region& region, const Binding& binding);
// Whether, by its dims, its kernel may take elements in any order: each operand has all or one.
bool takes_any_order(const Region& region);
// The layout, not the row-major one, in which most of its operands lie, where it may run over all
// of them in any order.
Layout shared_layout(const TileProgram& program, const Binding& binding);

std::shared_ptr<void> make_programs();  // of a new region, for its `kept`: none yet
size_t programs_made();                 // in this process

}  // namespace ort::tile
