// Kernels of tile regions: a text for each program and form, launched over any rows.
#pragma once

#include "providers/kernel_table.h"
#include "providers/tile/programs.h"

namespace ort::cuda {

Prepared prepare_tile(const Region& region, const Binding& binding);
// A program that no region made, on this device; ready at once.
std::unique_ptr<Kernel> make_tile_kernel(std::shared_ptr<const tile::TileProgram> program,
                                         tile::Extent extent, std::string name,
                                         const Device& device);

}  // namespace ort::cuda
