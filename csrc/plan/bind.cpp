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

Operands inputs_of(const Layout& layout, const BoundValues& values) {
  Operands inputs;
  const std::vector<ValueId>& ids = layout.graph->inputs();
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs.names.push_back(layout.graph->value(ids[i]).name());
    inputs.types.push_back(values.operand(ids[i]));
    inputs.types.back().device = layout.device_of_input(i);
  }
  return inputs;
}

Operands outputs_of(const Layout& layout, const BoundValues& values) {
  Operands outputs;
  for (const Output& output : layout.graph->outputs()) {
    outputs.names.push_back(output.name);
    outputs.types.push_back(values.operand(output.value));
    outputs.types.back().device = layout.options.home;
  }
  return outputs;
}

std::vector<Uploaded> uploads_of(const Layout& layout, const BoundValues& values,
                                 const Owned& owned, const std::vector<PlanDevice>& devices) {
  std::vector<Uploaded> uploads;
  for (const auto& [constant, index] : owned.uploads) {
    const PlanDevice& device = devices[static_cast<size_t>(index)];
    const Tensor& tensor = values.constants[constant];
    const ValueId id = values.fixed[constant];
    with_memory(devices, [&] {
      uploads.push_back(id == kNone ? upload(device, tensor)
                                    : layout.uploads->find(id, device, tensor));
    });
  }
  return uploads;
}

}  // namespace

Bound bind(const Layout& layout, const Symbols& symbols) {
  check_facts(layout.facts, symbols);
  BoundValues values(layout, symbols);
  Bound bound{std::make_unique<Plan>(), {}};
  Plan& plan = *bound.plan;
  plan.inputs = inputs_of(layout, values);
  plan.devices = devices_of(layout);
  plan.kernels = prepare_kernels(layout, values);
  plan.outputs = outputs_of(layout, values);  // an error of their sizes is their node's first
  bound.owned = own(layout, values, plan.devices, plan.kernels);
  Owned& owned = bound.owned;
  plan.steps = owned.steps;
  plan.operands = owned.operands;
  plan.object_count = owned.object_count;
  plan.input_objects = owned.input_objects;
  plan.output_objects = owned.output_objects;
  std::move(owned.copies.begin(), owned.copies.end(), std::back_inserter(plan.kernels));
  for (const Buffer& buffer : owned.buffers) plan.slot_bytes.push_back(buffer.bytes);
  for (Step& step : plan.steps) {
    step.checks = step.device > 0 && !step.kernel->failure().empty();
    if (step.checks) plan.devices[static_cast<size_t>(step.device)].flags = true;
  }
  plan.uploads = uploads_of(layout, values, owned, plan.devices);
  plan.constants = std::move(values.constants);
  return bound;
}

void place_values(Bound& bound) {
  Plan& plan = *bound.plan;
  share_in_place(bound.owned);
  plan.placement = fixed_slots(bound.owned, plan.devices.size());
  place_arenas(bound.owned, plan.devices.size(), 0, Slot::Kind::arena, plan.placement, plan.values);
  for (const Placed& value : plan.values) plan.total_bytes += value.bytes;
  for (const Step& step : plan.steps) plan.total_bytes += step.kernel->scratch_bytes();
  find_caller_slots(plan);
  order_streams(plan, plan.placement);
}

std::unique_ptr<Plan> make_plan(const Layout& layout, const Symbols& symbols) {
  Bound bound = bind(layout, symbols);
  place_values(bound);
  return std::move(bound.plan);
}

}  // namespace ort
