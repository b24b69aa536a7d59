// Filling a frame's pointer table.
#include "csrc/runtime/frame.h"

namespace ort {

Frame::Frame(const Plan& plan) : Frame(plan, plan.placement, nullptr) {}

std::unique_ptr<Frame> Frame::retained(const Plan& plan, const Frame& base) {
  return std::unique_ptr<Frame>(new Frame(plan, plan.retained, &base));
}

Frame::Frame(const Plan& plan, const Placement& placement, const Frame* base)
    : plan_(&plan),
      placement_(&placement),
      arena_(placement.bytes),
      pointers_(placement.slots.size()),
      opaque_(plan.opaque_count) {
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
        if (base) pointers_[i] = base->pointers_[i];
        break;
      case Slot::Kind::output:
        if (base) pointers_[i] = base->pointers_[i];
        break;
    }
  }
}

void Frame::set_input(size_t i, const void* data) {
  for (const int slot : plan_->input_slots[i])
    pointers_[static_cast<size_t>(slot)] = const_cast<void*>(data);
}

void Frame::set_output(size_t i, void* data) {
  for (const int slot : plan_->output_slots[i]) pointers_[static_cast<size_t>(slot)] = data;
}

}  // namespace ort
