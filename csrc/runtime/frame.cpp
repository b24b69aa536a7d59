// Filling a frame's pointer table.
#include "csrc/runtime/frame.h"

namespace ort {

Frame::Frame(const Plan& plan)
    : arena_(plan.arena_bytes), pointers_(plan.slots.size()), opaque_(plan.opaque_count),
      input_slots_(plan.inputs.types.size()), output_slots_(plan.outputs.types.size()) {
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    switch (slot.kind) {
      case Slot::Kind::arena:
        pointers_[i] = arena_.data() + slot.at;
        break;
      case Slot::Kind::constant:
        pointers_[i] = plan.constants[slot.at].data;
        break;
      case Slot::Kind::opaque:
        pointers_[i] = &opaque_[slot.at];
        break;
      case Slot::Kind::input:
        input_slots_[slot.at].push_back(static_cast<int>(i));
        break;
      case Slot::Kind::output:
        output_slots_[slot.at].push_back(static_cast<int>(i));
        break;
    }
  }
}

void Frame::set_input(size_t i, const void* data) {
  for (const int slot : input_slots_[i]) pointers_[static_cast<size_t>(slot)] = const_cast<void*>(data);
}

void Frame::set_output(size_t i, void* data) {
  for (const int slot : output_slots_[i]) pointers_[static_cast<size_t>(slot)] = data;
}

}  // namespace ort
