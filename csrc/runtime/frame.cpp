// Arenas, streams and the pointer table of a frame.
#include "csrc/runtime/frame.h"

namespace ort {
namespace {

constexpr size_t kFailureBytes = 64;  // of their own cache line

}  // namespace

Frame::Frame(const Plan& plan, std::optional<void*> native)
    : Frame(plan, plan.placement, nullptr, native) {}

std::unique_ptr<Frame> Frame::retained(const Plan& plan, const Placement& placement,
                                       const Frame& base) {
  return std::unique_ptr<Frame>(new Frame(plan, placement, &base, std::nullopt));
}

Frame::Frame(const Plan& plan, const Placement& placement, const Frame* base,
             std::optional<void*> native)
    : plan_(&plan),
      placement_(&placement),
      pointers_(placement.slots.size()),
      objects_(plan.object_count),
      marks_(plan.devices.size()),
      earlier_marks_(base ? base->marks_ : marks_),
      run_state_(base ? base->run_state_ : nullptr) {
  find_streams(base, native);
  with_memory(plan, [this] { allocate(); });
  for (size_t i = 0; i < pointers_.size(); ++i) pointers_[i] = pointer(placement.slots[i], i, base);
}

void Frame::find_streams(const Frame* base, std::optional<void*> native) {
  if (base) {
    streams_ = base->streams_;
    return;
  }
  streams_.resize(plan_->devices.size());
  for (size_t d = 0; d < streams_.size(); ++d)
    for (int use = 0; use < kStreams; ++use) {
      DeviceRuntime* runtime = plan_->devices[d].runtime;
      const bool callers = d == 1 && use == kCompute;  // the inputs' device is the second
      streams_[d][static_cast<size_t>(use)] =
          runtime ? &runtime->stream(use, callers ? native : std::nullopt) : &host_stream();
    }
}

void Frame::allocate() {
  host_ = Block(placement_->bytes[0]);
  arenas_.assign(1, host_.data());
  blocks_.clear();
  for (size_t d = 1; d < plan_->devices.size(); ++d) {
    const PlanDevice& device = plan_->devices[d];
    const size_t bytes =
        device.checks ? failure_at(static_cast<int>(d)) + kFailureBytes : placement_->bytes[d];
    blocks_.emplace_back(device.runtime->memory(), bytes, stream(static_cast<int>(d), kCompute));
    arenas_.push_back(blocks_.back().data());
  }
}

size_t Frame::failure_at(int device) const {
  const size_t bytes = placement_->bytes[static_cast<size_t>(device)];
  return (bytes + kFailureBytes - 1) / kFailureBytes * kFailureBytes;
}

void* Frame::pointer(const Slot& slot, size_t index, const Frame* base) {
  switch (slot.kind) {
    case Slot::Kind::arena:
      return base ? base->pointers_[index] : arena(slot.device) + slot.at;
    case Slot::Kind::second:
      return arena(slot.device) + slot.at;
    case Slot::Kind::constant:
      return plan_->constants[slot.at].data;
    case Slot::Kind::uploaded:
      return plan_->uploads[slot.at]->data();
    case Slot::Kind::object:
      if (base) objects_[slot.at] = base->objects_[slot.at];
      return &objects_[slot.at];
    case Slot::Kind::input:
    case Slot::Kind::output:
      break;
  }
  return base ? base->pointers_[index] : nullptr;
}

void Frame::set_input(size_t i, const void* data) {
  for (const int slot : plan_->input_slots[i])
    pointers_[static_cast<size_t>(slot)] = const_cast<void*>(data);
}

void Frame::set_object(size_t input, std::shared_ptr<void> object) {
  objects_[static_cast<size_t>(plan_->input_objects.at(input))] = std::move(object);
}

std::shared_ptr<void> Frame::object(size_t output) const {
  return objects_[static_cast<size_t>(plan_->output_objects.at(output))];
}

void Frame::set_output(size_t i, void* data) {
  for (const int slot : plan_->output_slots[i]) pointers_[static_cast<size_t>(slot)] = data;
}

}  // namespace ort
