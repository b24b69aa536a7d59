// A Plan: steps over slots, ready to run for one binding of the sizes. bind.cpp makes it out of
// pure functions, a file each: prepare, buffer_assignment, place, waits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/plan/deferred_errors.h"
#include "csrc/plan/device_memory.h"
#include "csrc/plan/lowered_graph.h"
#include "csrc/plan/recordings.h"

namespace ort {

struct Step {
  const Kernel* kernel = nullptr;
  int in = 0, n_in = 0, out = 0, n_out = 0;  // ranges of Plan::operands; a slot, or -1 when absent
  int segment = -1;
  int claim = -1;  // of the partition; -1: a copy of the plan's own
  std::string name;
  std::string_view provider;
  Place node;                // the region's last: where an error is
  int device = 0;            // of Plan::devices
  int stream = kCompute;     // of that device
  std::vector<int> waits{};  // earlier steps, on other streams, that must have run
  bool signals = false;      // a later step waits for it
  bool checks = false;       // its kernel runs late and may set a mark
  bool reads_host = false;   // its kernel, of a device, reads the host's memory when it is queued
  bool recordable = false;   // it queues the same in each run at the same addresses
};

// Where a slot's pointer comes from when a frame is set up.
struct Slot {
  enum class Kind : uint8_t { arena, second, input, output, constant, uploaded, object };
  Kind kind = Kind::arena;
  size_t at = 0;   // offset, or index
  int device = 0;  // of Plan::devices
  Layout layout{};
};

// Where values lie. The second arena is used by a backward that must leave the stash as it is.
struct Placement {
  std::vector<Slot> slots;
  std::vector<size_t> scratch;  // of each step, in its device's arena
  std::vector<size_t> bytes;    // of the arena, or of the second one, by device
};

// A value's place in an arena and the steps between which it is there: for reports.
struct Placed {
  size_t at, bytes;
  int first, last;
  int device;
};

struct Operands {
  std::vector<std::string> names;
  std::vector<Operand> types;
};

struct Plan {
  Plan() = default;
  Plan(Plan&&) = default;
  ~Plan();  // waits for its devices: what is queued there refers to kernels and constants

  std::vector<PlanDevice> devices;         // the host is the first
  std::shared_ptr<DeferredErrors> errors;  // of all plans of a capture, or of a program
  std::vector<Step> steps;
  std::vector<int> operands;
  std::vector<size_t> slot_bytes;
  Placement placement;
  std::vector<Placed> values;  // of the arenas
  std::vector<Tensor> constants;
  std::vector<std::shared_ptr<const void>> held_constants;  // of these, what steps read
  std::vector<Uploaded> uploads;
  std::vector<std::unique_ptr<Kernel>> kernels;
  Operands inputs, outputs;
  std::vector<std::vector<int>> input_slots, output_slots;  // whose pointer the caller gives
  size_t total_bytes = 0;  // of the arenas' values and scratch, were each its own memory
  size_t object_count = 0;
  std::vector<int> input_objects, output_objects;  // which of the objects it is; -1: it is none
  std::unique_ptr<Recordings> recordings;  // null: nothing is recorded. It goes before the kernels

  size_t arena_bytes() const;  // of all devices
};

// How the step's results lie: of the first that is not row-major; empty where all are.
std::string layout_of(const Plan& plan, const Step& step);

// What a plan needs at its peak: its arenas and its largest values, with the steps that make them.
std::string describe_peak(const Plan& plan);

// As with_memory; where there is none, the error tells what the plan needs.
template <class F>
void with_memory(const Plan& plan, F&& allocate) {
  try {
    with_memory(std::span(plan.devices), allocate);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(format("{}; {}", error.what(), describe_peak(plan)));
  }
}

}  // namespace ort
