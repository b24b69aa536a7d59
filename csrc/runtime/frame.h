// A frame: the memory and pointers of one call. It belongs to that call until it is given back. The
// same plan may be run on it again: its addresses stay.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/core/pool.h"
#include "csrc/plan/plan.h"

namespace ort {

class Frame {
 public:
  // `native`: the caller's stream on the device that the graph's inputs lie on, where that is not
  // the host. Where there is no memory, caches are given back and it is tried once more; then
  // OutOfMemory tells what the plan needs.
  explicit Frame(const Plan& plan, std::optional<void*> native = {});
  // A frame for a backward that leaves `base`'s stash as it is: shares its pointers, has its own
  // arenas for what it makes, and holds `base`'s objects beside it: a kernel that takes one out of
  // its slot sees by the use count whether it is the last. `base` must outlive it.
  static std::unique_ptr<Frame> retained(const Plan& plan, const Placement& placement,
                                         const Frame& base);

  void set_input(size_t i, const void* data);
  void set_output(size_t i, void* data);
  // Inputs and outputs that are objects.
  void set_object(size_t input, std::shared_ptr<void> object);
  std::shared_ptr<void> object(size_t output) const;
  void set_run_state(RunState* state) { run_state_ = state; }  // its kernels are told
  RunState* run_state() const { return run_state_; }
  void* const* pointers() const { return pointers_.data(); }
  uint8_t* arena(int device) const { return arenas_[static_cast<size_t>(device)]; }
  // What the steps on a device found wrong in this call; null where none has looked.
  std::shared_ptr<FailureMark>& mark(int device) { return marks_[static_cast<size_t>(device)]; }
  // As that, of the forward before a retained backward.
  const std::shared_ptr<FailureMark>& earlier_mark(int device) const {
    return earlier_marks_[static_cast<size_t>(device)];
  }
  // Where these steps say so, in the device's memory behind the arena.
  int32_t* failure(int device) const {
    return reinterpret_cast<int32_t*>(arena(device) + failure_at(device));
  }
  Stream& stream(int device, int use) const {
    return *streams_[static_cast<size_t>(device)][static_cast<size_t>(use)];
  }
  const Placement& placement() const { return *placement_; }

 private:
  Frame(const Plan& plan, const Placement& placement, const Frame* base,
        std::optional<void*> native);
  void find_streams(const Frame* base, std::optional<void*> native);
  void allocate();
  size_t failure_at(int device) const;
  void* pointer(const Slot& slot, size_t index, const Frame* base);

  const Plan* plan_;
  const Placement* placement_;
  Block host_;
  std::vector<DeviceBlock> blocks_;  // ordered by their device's first stream
  std::vector<uint8_t*> arenas_;     // by device
  std::vector<std::array<Stream*, kStreams>> streams_;
  std::vector<void*> pointers_;
  std::vector<std::shared_ptr<void>> objects_;
  std::vector<std::shared_ptr<FailureMark>> marks_, earlier_marks_;  // by device
  RunState* run_state_ = nullptr;
};

}  // namespace ort
