// A kernel: one region made ready for one set of concrete sizes. Prepared once, run many times,
// from any thread; what it needs while running comes in its arguments. What it queues may refer to
// it: a plan waits for its devices before its kernels go.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/core/device.h"
#include "csrc/core/dim.h"
#include "csrc/core/dtype.h"
#include "providers/constant.h"
#include "providers/layout.h"

namespace ort {

class RunState;

// A concrete operand: what a kernel knows at preparation.
struct Operand {
  DType dtype = DType::undefined;
  Sizes sizes{};
  bool present = false;
  Constant constant{};  // its bytes on the host, when they are known at preparation
  Device device{};      // whose memory its pointer is of when the kernel is run
  Layout layout{};      // of an input: how it lies before anything is done for this kernel
  // Whether the kernel may have an input in another layout; of an output, whether a reader could
  // take it in one that is not row-major: else a reorder follows. The kernel says which it is.
  bool any_layout = false;
  // Of an input: whether it may be taken as it comes, which is not row-major.
  bool comes_blocked() const { return any_layout && layout.blocked(); }
  bool comes_with_channels_last() const {
    return comes_blocked() && layout.blocked()->channels_last();
  }
};

// Pointers of one call, in the region's order of inputs and outputs. Absent operands are null.
struct Args {
  void* const* in;
  void* const* out;
  void* scratch;  // scratch_bytes() of it, 64-byte aligned, undefined contents
  Stream& stream = host_stream();
  // Where a kernel that runs late writes `mark`, if nothing is there, when what it checks fails: of
  // the device's memory.
  int32_t* failure = nullptr;
  int32_t mark = 0;
  RunState* run = nullptr;  // what the run may still cost; null: there is no limit
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const Args& args) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
  // Output `out` may be written over the memory of input `in` (same bytes, same dtype, each element
  // read before it is written).
  virtual bool in_place(size_t /*in*/, size_t /*out*/) const { return false; }
  // What it made of input `in`, a constant, and reads in its place; null: it reads the input.
  virtual std::shared_ptr<const Pack> pack(size_t /*in*/) const { return nullptr; }
  // In which layouts it reads and writes. An input that has not `any_layout` is row-major.
  virtual Layout layout_of_input(size_t /*in*/) const { return {}; }
  virtual Layout layout_of_output(size_t /*out*/) const { return {}; }
  // Whether a run only queues work on the stream, the same one each time for the same addresses and
  // the same bytes of what it reads on the host: then a device may record it.
  virtual bool may_be_recorded() const { return false; }
  virtual std::string name() const = 0;  // for reports: "matmul+bias+gelu"
  // What it means when the mark is set after a run; empty: it sets none.
  virtual std::string failure() const { return {}; }
};

// What a provider makes of a region: a kernel, or sources that are compiled first, in parallel and
// outside of locks, and then linked to one. Sources of one key are compiled once for a plan.
struct Source {
  std::string key;
  std::function<std::shared_ptr<const void>()> compile;
};
struct Prepared {
  using Compiled = std::vector<std::shared_ptr<const void>>;  // in the order of sources
  std::vector<Source> sources;
  std::function<std::unique_ptr<Kernel>(const Compiled&)> link;
  std::unique_ptr<Kernel> kernel;  // where nothing is to be compiled

  template <class K>
  Prepared(std::unique_ptr<K> ready) : kernel(std::move(ready)) {}  // NOLINT: a kernel is prepared
  Prepared(std::vector<Source> sources,
           std::function<std::unique_ptr<Kernel>(const Compiled&)> link)
      : sources(std::move(sources)), link(std::move(link)) {}
  std::unique_ptr<Kernel> finish() &&;  // here and now
};

}  // namespace ort
