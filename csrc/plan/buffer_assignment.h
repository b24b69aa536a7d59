// Which memory holds each value, and the steps that this takes: copies between devices, and into
// the caller's outputs where a kernel cannot write there.
#pragma once

#include "csrc/plan/plan.h"
#include "csrc/plan/values.h"

namespace ort {

// Memory that one or more values share.
struct Buffer {
  Slot::Kind kind = Slot::Kind::arena;
  size_t at = 0;
  size_t bytes = 0;
  int device = 0;  // of the plan's devices
  Layout layout{};
  int first = 1 << 30, last = -1;  // steps
  int merged_into = -1;
};

struct BufferAssignment {
  std::vector<Step> steps;
  std::vector<int> operands;  // buffers, in the steps' ranges
  std::vector<Buffer> buffers;
  std::vector<std::unique_ptr<Kernel>> copies;
  std::vector<std::pair<size_t, int>> uploads;  // constant, device; by Buffer::at
  std::vector<int> output_ready;                // by output: the step that completes it; -1: none
  size_t object_count = 0;
  std::vector<int> input_objects, output_objects;  // of the graph's inputs and outputs; or -1
};

// The devices of a lowered graph's claims, the host first; each other one has a provider with
// memory.
std::vector<PlanDevice> devices_of(const LoweredGraph& lowered);

// `kernels`: of the claims, in the order in which they run.
BufferAssignment assign_buffers(const LoweredGraph& lowered, const BoundValues& values,
                                const std::vector<PlanDevice>& devices,
                                std::span<const std::unique_ptr<Kernel>> kernels);

// Whether output `o` of a step may be written over its input `i`: the kernel allows it, and reads
// that buffer through no other operand.
bool may_overwrite(const Step& step, std::span<const int> operands,
                   const std::vector<Buffer>& buffers, int i, int o);
// The buffer that this one is a part of by now.
int root(const std::vector<Buffer>& buffers, int buffer);

}  // namespace ort
