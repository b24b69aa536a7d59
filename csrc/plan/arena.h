// Which values lie where in the arenas, one a device.
#pragma once

#include "csrc/plan/buffer_assignment.h"

namespace ort {

// An arena output takes over the memory of an input that dies at its step: merges the buffers.
void share_in_place(BufferAssignment& owned);

// Offsets for the arena's buffers that are made at step `first` or later, and for the scratch of
// these steps; their slots are of `kind`, all others as they are in `placement`.
void place_arenas(const BufferAssignment& owned, size_t devices, int first, Slot::Kind kind,
                  Placement& placement, std::vector<Placed>& values);
// Slots of buffers that need no place.
Placement fixed_slots(const BufferAssignment& owned, size_t devices);

}  // namespace ort
