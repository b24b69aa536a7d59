// The stages of a plan on one page; each is a function in a file of its name.
#include "csrc/plan/bind.h"

#include <algorithm>

#include "csrc/plan/arena.h"
#include "csrc/plan/prepare.h"
#include "csrc/plan/waits.h"

namespace ort {
namespace {

void find_caller_slots(Plan& plan) {
  plan.input_slots.resize(plan.inputs.types.size());
  plan.output_slots.resize(plan.outputs.types.size());
  const std::vector<Slot>& slots = plan.placement.slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].kind == Slot::Kind::input)
      plan.input_slots[slots[i].at].push_back(static_cast<int>(i));
    else if (slots[i].kind == Slot::Kind::output)
      plan.output_slots[slots[i].at].push_back(static_cast<int>(i));
  }
}

// What is copied on another stream is read there.
bool reads_host(const Plan& plan, const Step& step) {
  if (step.device == 0 || step.stream != kCompute) return false;
  for (int i = step.in; i < step.in + step.n_in; ++i) {
    const int operand = plan.operands[static_cast<size_t>(i)];
    if (operand < 0) continue;
    const Slot& slot = plan.placement.slots[static_cast<size_t>(operand)];
    if (slot.device == 0 && slot.kind != Slot::Kind::constant) return true;
  }
  return false;
}

// A launch keeps what the host read for it, so that has to be the same in each run.
void find_host_reads(Plan& plan) {
  for (Step& step : plan.steps) {
    step.reads_host = reads_host(plan, step);
    step.recordable = plan.recordings && step.device > 0 && step.stream == kCompute &&
                      !step.reads_host && step.kernel->may_be_recorded();
  }
}

Operands inputs_of(const LoweredGraph& lowered, const BoundValues& values) {
  Operands inputs;
  const std::vector<ValueId>& ids = lowered.graph->inputs();
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs.names.push_back(lowered.graph->value(ids[i]).name());
    inputs.types.push_back(values.operand(ids[i]));
    inputs.types.back().device = lowered.device_of_input(i);
  }
  return inputs;
}

Operands outputs_of(const LoweredGraph& lowered, const BoundValues& values) {
  Operands outputs;
  for (const Output& output : lowered.graph->outputs()) {
    outputs.names.push_back(output.name);
    outputs.types.push_back(values.operand(output.value));
    outputs.types.back().device = lowered.options.home;
  }
  return outputs;
}

// What no step reads, as all have packed it, is kept no more.
void hold_constants(Plan& plan, const std::vector<Buffer>& buffers) {
  std::vector<std::shared_ptr<const Pack>> packs(plan.constants.size());
  std::vector<bool> read(plan.constants.size());
  for (const Step& step : plan.steps)
    for (int i = 0; i < step.n_in; ++i) {
      const int operand = plan.operands[static_cast<size_t>(step.in + i)];
      if (operand < 0 || buffers[static_cast<size_t>(operand)].kind != Slot::Kind::constant)
        continue;
      const size_t constant = buffers[static_cast<size_t>(operand)].at;
      if (auto pack = step.kernel->pack(static_cast<size_t>(i)))
        packs[constant] = std::move(pack);
      else
        read[constant] = true;
    }
  for (size_t i = 0; i < packs.size(); ++i)
    if (read[i])
      plan.held_constants.push_back(hold(plan.constants[i]));
    else if (packs[i])
      discard(plan.constants[i], std::move(packs[i]));
}

std::vector<Uploaded> uploads_of(const LoweredGraph& lowered, const BoundValues& values,
                                 const BufferAssignment& owned,
                                 const std::vector<PlanDevice>& devices) {
  std::vector<Uploaded> uploads;
  for (const auto& [constant, index] : owned.uploads) {
    const PlanDevice& device = devices[static_cast<size_t>(index)];
    const Tensor& tensor = values.constants[constant];
    const ValueId id = values.fixed[constant];
    with_memory(devices, [&] {
      uploads.push_back(id == kNone ? upload(device, tensor)
                                    : lowered.uploads->find(id, device, tensor));
    });
  }
  return uploads;
}

}  // namespace

UnplacedPlan bind(const LoweredGraph& lowered, const Symbols& symbols) {
  check_facts(lowered.facts, symbols);
  BoundValues values(lowered, symbols);
  UnplacedPlan bound{std::make_unique<Plan>(), {}};
  Plan& plan = *bound.plan;
  plan.inputs = inputs_of(lowered, values);
  plan.devices = devices_of(lowered);
  plan.errors = lowered.errors;
  if (lowered.options.recordings && plan.devices.size() > 1)
    plan.recordings = std::make_unique<Recordings>();
  plan.kernels = prepare_kernels(lowered, values);
  plan.outputs = outputs_of(lowered, values);  // an error of their sizes is their node's first
  bound.owned = assign_buffers(lowered, values, plan.devices, plan.kernels);
  BufferAssignment& owned = bound.owned;
  plan.steps = owned.steps;
  plan.operands = owned.operands;
  plan.object_count = owned.object_count;
  plan.input_objects = owned.input_objects;
  plan.output_objects = owned.output_objects;
  std::move(owned.copies.begin(), owned.copies.end(), std::back_inserter(plan.kernels));
  for (const Buffer& buffer : owned.buffers) plan.slot_bytes.push_back(buffer.bytes);
  for (Step& step : plan.steps) {
    step.checks = step.device > 0 && !step.kernel->failure().empty();
    PlanDevice& device = plan.devices[static_cast<size_t>(step.device)];
    device.checks = device.checks || step.checks;
  }
  plan.uploads = uploads_of(lowered, values, owned, plan.devices);
  plan.constants = std::move(values.constants);
  hold_constants(plan, owned.buffers);
  return bound;
}

void place_values(UnplacedPlan& bound) {
  Plan& plan = *bound.plan;
  share_in_place(bound.owned);
  plan.placement = fixed_slots(bound.owned, plan.devices.size());
  place_arenas(bound.owned, plan.devices.size(), 0, Slot::Kind::arena, plan.placement, plan.values);
  for (const Placed& value : plan.values) plan.total_bytes += value.bytes;
  for (const Step& step : plan.steps) plan.total_bytes += step.kernel->scratch_bytes();
  find_caller_slots(plan);
  find_host_reads(plan);
  order_streams(plan, plan.placement);
}

std::unique_ptr<Plan> make_plan(const LoweredGraph& lowered, const Symbols& symbols) {
  UnplacedPlan bound = bind(lowered, symbols);
  place_values(bound);
  return std::move(bound.plan);
}

}  // namespace ort
