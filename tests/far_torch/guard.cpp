// What torch asks of a device: its guard, streams and events, its hooks and its generator.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>
#include <utility>

#include "tests/far/queue.h"
#include "tests/far_torch/device.h"

namespace far {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
thread_local c10::StreamId current_id = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(current_id); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(kCallers - 1); }
  c10::Stream exchangeStream(c10::Stream now) const override {
    return stream(std::exchange(current_id, now.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &stream_of(stream.id());
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    destroyEvent(*event, 0);
    *event = stream_of(stream.id()).record().release();
  }
  void block(void* event, const c10::Stream& stream) const override {
    stream_of(stream.id()).wait(*static_cast<ort::Event*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<ort::Event*>(event);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    stream_of(stream.id()).synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex) const override { Schedule::instance().run_all(); }
  void synchronizeEvent(void* event) const override {
    static_cast<ort::Event*>(event)->synchronize();
  }

 private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Counts what it gives, as a device's generator does.
class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  GeneratorImpl()
      : c10::GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    const auto* numbers = static_cast<const uint64_t*>(state.data());
    seed_ = numbers[0];
    offset_ = numbers[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({2 * sizeof(uint64_t)}, at::kByte);
    const uint64_t numbers[] = {seed_, offset_};
    std::memcpy(state.data_ptr(), numbers, sizeof numbers);
    return state.getIntrusivePtr();
  }

 private:
  GeneratorImpl* clone_impl() const override {
    auto* copy = new GeneratorImpl();
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }
  uint64_t seed_ = 0, offset_ = 0;
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return generator(); }
};

}  // namespace

const at::Generator& generator() {
  static const auto generator = at::make_generator<GeneratorImpl>();
  return generator;
}

Stream& stream_of(c10::StreamId id) {
  return Schedule::instance().stream(ort::kStreams + static_cast<int>(id));
}

Stream& current() {
  return stream_of(current_id);
}

void register_hooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace far
