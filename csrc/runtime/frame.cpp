// Filling a frame's pointer table.
#include "csrc/runtime/frame.h"

namespace ort {

Frame::Frame(const Plan& plan) : Frame(plan, plan.placement, nullptr) {}

std::unique_ptr<Frame> Frame::retained(const Plan& plan, const Frame& base) {
  return std::unique_ptr<Frame>(new Frame(plan, plan.retained, &base));
}

Frame::Frame(const Plan& plan, const Placement& placement, const Frame* base)
    : placement_(&placement),
      arena_(placement.bytes),
      pointers_(placement.slots.size()),
      opaque_(plan.opaque_count),
      input_slots_(plan.inputs.types.size()),
      output_slots_(plan.outputs.types.size()) {
  for (size_t i = 0; i < placement.slots.size(); ++i) {
    const Slot& slot = placement.slots[i];
    switch (slot.kind) {
      case Slot::Kind::arena:
        pointers_[i] = base ? base->pointers_[i] : arena_.data() + slot.at;
        break;
      case Slot::Kind::second:
        pointers_[i] = arena_.data() + slot.at;
        break;
      case Slot::Kind::constant:
        pointers_[i] = plan.constants[slot.at].data;
        break;
      case Slot::Kind::opaque:
        if (base) opaque_[slot.at] = base->opaque_[slot.at];
        pointers_[i] = &opaque_[slot.at];
        break;
      case Slot::Kind::input:
        input_slots_[slot.at].push_back(static_cast<int>(i));
        if (base) pointers_[i] = base->pointers_[i];
        break;
      case Slot::Kind::output:
        output_slots_[slot.at].push_back(static_cast<int>(i));
        break;
    }
  }
}

void Frame::set_input(size_t i, const void* data) {
  for (const int slot : input_slots_[i])
    pointers_[static_cast<size_t>(slot)] = const_cast<void*>(data);
}

void Frame::set_output(size_t i, void* data) {
  for (const int slot : output_slots_[i]) pointers_[static_cast<size_t>(slot)] = data;
}

}  // namespace ort
