// A kernel: one region made ready for one set of concrete sizes. Prepared once, run many times,
// from any thread; what it needs while running comes in its arguments.
#pragma once

#include <span>

#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"

namespace ort {

// A concrete operand: what a kernel knows at preparation.
struct Operand {
  DType dtype = DType::undefined;
  Sizes sizes;
  bool present = false;
  const void* constant = nullptr;  // its bytes, when they are known at preparation (shape operands)
  bool frozen =
      false;  // the pointer and the bytes stay for the life of the plan (weights of a session)
};

// Pointers of one call, in the region's order of inputs and outputs. Absent operands are null.
struct Args {
  void* const* in;
  void* const* out;
  void* scratch;  // scratch_bytes() of it, 64-byte aligned, undefined contents
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const Args& args) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
  // Output `out` may be written over the memory of input `in` (same bytes, same dtype, each element
  // read before it is written).
  virtual bool in_place(size_t /*in*/, size_t /*out*/) const { return false; }
  virtual std::string name() const = 0;  // for reports: "matmul+bias+gelu"
};

}  // namespace ort
