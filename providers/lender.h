// What a caller's library has of a device and lends to the provider of that device: its memory, and
// what it has switched. Torch's part of the engine lends torch's.
#pragma once

#include <cstddef>

#include "csrc/core/device.h"

namespace ort {

class Lender {
 public:
  virtual ~Lender() = default;
  // Memory for work that is queued on its stream of this name; null: it lends none for that one.
  virtual void* allocate(int device, size_t bytes, void* stream) = 0;  // throws OutOfMemory
  virtual void free(int device, void* data) = 0;                       // as it was allocated
  virtual void trim(int device) = 0;  // gives back what is kept idle
  // Whether products of float32 may round their operands to TF32.
  virtual bool allows_tf32() = 0;
};

// For devices of this kind, for the rest of the process.
void lend(DeviceKind kind, Lender& lender);
Lender* lender(DeviceKind kind);  // or null

}  // namespace ort
