// A tile program as the text of kernels.
#pragma once

#include <string>

#include "providers/cuda/tile/form.h"

namespace ort::cuda {

// The kernels `run`, where there are lanes `packs`, and, where columns are summed, `fold`. Their
// argument: inputs (a key by its number), outputs, the sums' memory, failure and mark, rows,
// columns, of each strided input sizes and strides, numbers that depend on the columns, counters of
// dropouts.
std::string tile_text(const tile::TileProgram& program, const TileForm& form);

}  // namespace ort::cuda
