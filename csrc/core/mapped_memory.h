// What spares the host a wait for a device: a device's Memory may be this too.
#pragma once

#include "csrc/core/device.h"

namespace ort {

class MappedMemory {
 public:
  virtual ~MappedMemory() = default;
  // Memory of the host's that kernels of the device write to, and that the host may read meanwhile.
  // It is never given back.
  virtual void* allocate_mapped(size_t bytes) = 0;
  virtual bool is_done(Event& event) = 0;  // of the device: whether a wait for it would be none
};

}  // namespace ort
