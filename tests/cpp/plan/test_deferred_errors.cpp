// Errors that kernels of a device find when the host has gone on, of a device that may be lost.
#include "csrc/plan/deferred_errors.h"

#include <gtest/gtest.h>

#include "csrc/plan/plan.h"

namespace ort {
namespace {

// Its work is done when a test says so, or it is lost: every call fails then.
struct State {
  bool done = false, lost = false;
  bool is_done() const {
    check(!lost, "the device is lost");
    return done;
  }
};

class EventOf final : public Event {
 public:
  explicit EventOf(State& state) : state_(state) {}
  void synchronize() override { state_.done = state_.is_done() || true; }

 private:
  State& state_;
};

class MemoryOf final : public Memory {
 public:
  explicit MemoryOf(const State& state) : state_(state) {}
  void* allocate(size_t, Stream&) override { return nullptr; }
  void free(void*, size_t, Stream&) override {}
  void zero(void*, size_t, Stream&) override {}
  void copy(void*, const void*, size_t, CopyKind, Stream&) override {}
  void write(void*, const void*, size_t, Stream&) override {}
  void* allocate_mapped(size_t bytes) override {
    mapped_.resize(mapped_.size() + bytes);
    return mapped_.data();
  }
  bool is_done(Event&) override { return state_.is_done(); }

 private:
  const State& state_;
  std::vector<uint8_t> mapped_;
};

// Of a device that does not say what MemoryOf says.
class PlainMemory final : public Memory {
 public:
  void* allocate(size_t, Stream&) override { return nullptr; }
  void free(void*, size_t, Stream&) override {}
  void zero(void*, size_t, Stream&) override {}
  void copy(void*, const void*, size_t, CopyKind, Stream&) override {}
  void write(void*, const void*, size_t, Stream&) override {}
};

class Runtime final : public DeviceRuntime {
 public:
  Runtime(const State& state, Memory& memory) : state_(state), memory_(memory) {}
  Memory& memory() override { return memory_; }
  Stream& stream(int, std::optional<void*>) override { return host_stream(); }
  void synchronize() override { state_.is_done(); }

 private:
  const State& state_;
  Memory& memory_;
};

class Checking final : public Kernel {
 public:
  void run(const Args&) const override {}
  std::string name() const override { return "checking"; }
  std::string failure() const override { return "[Checking] an index is out of range"; }
};

constexpr Device kDevice{DeviceKind::private_use, 0};

// Lives as long as marks of its memory do, so to the end.
struct LateDevice {
  State state;
  MemoryOf memory{state};
  Runtime runtime{state, memory};
  Checking kernel;
  PlanDevice as_planned() { return {kDevice, &runtime}; }
  std::unique_ptr<Plan> plan(const std::shared_ptr<DeferredErrors>& errors) {
    auto plan = std::make_unique<Plan>();
    plan->devices = {{Device{}, nullptr}, as_planned()};
    plan->errors = errors;
    plan->steps.resize(1);
    plan->steps[0].kernel = &kernel;
    return plan;
  }
  // A run in flight that finds something wrong, or not.
  void run(const Plan& plan, bool wrong) {
    auto mark = FailureMark::take(as_planned());
    *mark->place() = wrong ? 1 : 0;
    plan.errors->add(plan, std::move(mark), std::make_shared<EventOf>(state));
  }
};

TEST(DeferredErrors, ADeviceWithoutMappedMemoryIsRefusedByName) {
  State state;
  PlainMemory memory;
  Runtime runtime(state, memory);
  try {
    FailureMark::take({kDevice, &runtime});
    FAIL() << "it has no memory that the host reads";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "kernels on private_use:0 may find something wrong and cannot tell the host");
  }
  const std::unique_ptr<Event> event = host_stream().record();
  EXPECT_THROW(memory.is_done(*event), Error);
}

TEST(DeferredErrors, APlanOfALostDeviceGoesAndLeavesWhatItFound) {
  auto* device = new LateDevice();
  const auto errors = std::make_shared<DeferredErrors>();
  auto plan = device->plan(errors), other = device->plan(errors);
  device->run(*plan, true);
  device->run(*other, false);
  device->state.lost = true;
  plan.reset();
  other.reset();
  EXPECT_THROW(errors->raise(), DeferredError);
  EXPECT_NO_THROW(errors->raise());
}

TEST(DeferredErrors, AMarkIsUsedAgainWhenItsRunHasEnded) {
  auto* device = new LateDevice();
  const auto errors = std::make_shared<DeferredErrors>();
  const auto plan = device->plan(errors);
  const auto place = [&] { return FailureMark::take(device->as_planned())->place(); };
  const int32_t* first = place();
  EXPECT_EQ(place(), first);
  device->run(*plan, false);
  errors->raise();
  EXPECT_NE(place(), first);
  device->state.done = true;
  errors->raise();
  EXPECT_EQ(place(), first);
}

}  // namespace
}  // namespace ort
