// What kernels of a device find wrong when the host has gone on: it is told at a later run, or to
// whoever asks.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "csrc/core/error.h"
#include "csrc/core/mutex.h"
#include "csrc/plan/device_memory.h"

namespace ort {

struct Plan;

// Of an earlier run than the one that throws it.
class __attribute__((visibility("default"))) DeferredError : public Error {
 public:
  using Error::Error;
};

// Where the kernels of one run on one device say which step found something wrong: memory of the
// host's that the device writes to. It lives until the device is done with it, so neither in the
// frame nor in the plan.
class FailureMark {
 public:
  static std::shared_ptr<FailureMark> take(const PlanDevice& device);
  FailureMark(Memory& memory, int32_t* place) : memory_(memory), place_(place) {}
  ~FailureMark();
  FailureMark(const FailureMark&) = delete;
  int32_t* place() const { return place_; }
  Memory& memory() const { return memory_; }
  // The step's number from one; 0: nothing was found so far.
  int32_t read() const { return std::atomic_ref(*place_).load(std::memory_order_acquire); }
  bool tell() { return !told_.exchange(true); }  // whether nobody was told before

 private:
  Memory& memory_;
  int32_t* place_;
  std::atomic<bool> told_ = false;
};

// Of the plans of one owner: what one of them found is told though it is gone.
class DeferredErrors {
 public:
  DeferredErrors() = default;
  ~DeferredErrors();  // logs what nobody was told
  DeferredErrors(const DeferredErrors&) = delete;
  // A run of the plan may set the mark before `end`.
  void add(const Plan& plan, std::shared_ptr<FailureMark> mark, std::shared_ptr<Event> end);
  // Throws a DeferredError where something was found that nobody was told; one for each run.
  void raise();
  void finish_and_raise();  // when what was added has run
  // Of a plan that goes and whose devices have nothing to do, or are lost.
  void leave(const Plan& plan);

 private:
  struct Run {
    const Plan* plan;
    std::shared_ptr<FailureMark> mark;
    std::shared_ptr<Event> end;
  };
  void note(const Run& run);

  Mutex mutex_;  // of what follows
  std::vector<Run> runs_;
  std::vector<std::string> found_;
};

// What the mark of a step says.
std::string failure_text(const Plan& plan, int32_t mark);

}  // namespace ort
