// Contexts are made current where work is queued: any thread may do so. Events are used again.
#include "providers/cuda/device.h"

#include <cstring>
#include <set>

#include "csrc/core/error.h"
#include "providers/lender.h"

namespace ort::cuda {
namespace {

class EventOf final : public Event {
 public:
  EventOf(Gpu& gpu, EventHandle handle) : gpu_(gpu), handle_(handle) {}
  ~EventOf() override { gpu_.give_event(handle_); }
  void synchronize() override {
    const Current current(gpu_);
    ORT_DRIVER(cuEventSynchronize, handle_);
  }
  EventHandle handle() const { return handle_; }

 private:
  Gpu& gpu_;
  EventHandle handle_;
};

StreamHandle handle_of(ort::Stream& stream) {
  return static_cast<Stream&>(stream).handle();
}

Address address(const void* data) {
  return reinterpret_cast<Address>(data);
}

// Blocks of whoever lends memory, else of the driver's pool, which keeps what is freed.
class MemoryOf final : public Memory {
 public:
  MemoryOf(const Gpu& gpu, int device) : gpu_(gpu) {
    ORT_DRIVER(cuDeviceGetDefaultMemPool, &pool_, device);
    uint64_t most = UINT64_MAX;
    ORT_DRIVER(cuMemPoolSetAttribute, pool_, kReleaseThreshold, &most);
  }
  void* allocate(size_t bytes, ort::Stream& stream) override {
    if (Lender* from = lender(kind())) {
      if (void* data = from->allocate(gpu_.index(), bytes, handle_of(stream))) {
        const std::lock_guard lock(mutex_);
        lent_.insert(data);
        return data;
      }
    }
    const Current current(gpu_);
    Address data = 0;
    ORT_DRIVER(cuMemAllocAsync, &data, bytes, handle_of(stream));
    return reinterpret_cast<void*>(data);
  }
  void free(void* data, size_t, ort::Stream& stream) override {
    if (is_returned(data)) return lender(kind())->free(gpu_.index(), data);
    const Current current(gpu_);
    ORT_DRIVER(cuMemFreeAsync, address(data), handle_of(stream));
  }
  void zero(void* data, size_t bytes, ort::Stream& stream) override {
    const Current current(gpu_);
    ORT_DRIVER(cuMemsetD8Async, address(data), 0, bytes, handle_of(stream));
  }
  void copy(void* to, const void* from, size_t bytes, CopyKind kind, ort::Stream& stream) override {
    const Current current(gpu_);
    const StreamHandle on = handle_of(stream);
    if (kind == CopyKind::to_device) ORT_DRIVER(cuMemcpyHtoDAsync_v2, address(to), from, bytes, on);
    if (kind == CopyKind::to_host) ORT_DRIVER(cuMemcpyDtoHAsync_v2, to, address(from), bytes, on);
    if (kind == CopyKind::within)
      ORT_DRIVER(cuMemcpyDtoDAsync_v2, address(to), address(from), bytes, on);
  }
  // The driver takes numbers with the call, as the arguments of a launch.
  void write(void* to, const void* from, size_t bytes, ort::Stream& stream) override {
    const Current current(gpu_);
    const auto* byte = static_cast<const uint8_t*>(from);
    size_t at = 0;
    for (; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t)) {
      uint32_t word = 0;
      std::memcpy(&word, byte + at, sizeof word);
      ORT_DRIVER(cuMemsetD32Async, address(to) + at, word, 1, handle_of(stream));
    }
    for (; at < bytes; ++at)
      ORT_DRIVER(cuMemsetD8Async, address(to) + at, byte[at], 1, handle_of(stream));
  }
  // Its address is the same on the device, as addresses are unified.
  void* allocate_mapped(size_t bytes) override {
    const Current current(gpu_);
    void* data = nullptr;
    ORT_DRIVER(cuMemHostAlloc, &data, bytes, kPortable | kMapped);
    return data;
  }
  bool is_done(Event& event) override {
    const Current current(gpu_);
    const Status status = api().cuEventQuery(static_cast<EventOf&>(event).handle());
    if (status != kNotReady) check_driver(status, "cuEventQuery");
    return status == kSuccess;
  }
  void trim() override {
    const Current current(gpu_);
    ORT_DRIVER(cuCtxSynchronize);
    ORT_DRIVER(cuMemPoolTrimTo, pool_, 0);
    if (Lender* from = lender(kind())) from->trim(gpu_.index());
  }

 private:
  bool is_returned(void* data) {
    const std::lock_guard lock(mutex_);
    return lent_.erase(data) > 0;
  }

  const Gpu& gpu_;
  std::mutex mutex_;
  std::set<void*> lent_;  // what is not of the driver's pool
  PoolHandle pool_ = nullptr;
};

// A graph of the driver's, whose kernels have the arguments that they were launched with.
class GraphOf final : public Recording {
 public:
  GraphOf(Gpu& gpu, GraphExecHandle graph) : gpu_(gpu), graph_(graph) {}
  ~GraphOf() override {
    const Current current(gpu_);
    api().cuGraphExecDestroy(graph_);
  }
  void replay(ort::Stream& stream) override {
    const Current current(gpu_);
    ORT_DRIVER(cuGraphLaunch, graph_, handle_of(stream));
  }

 private:
  Gpu& gpu_;
  GraphExecHandle graph_;
};

// Destroys the graph when it goes: what was made of it lives on.
class Captured {
 public:
  explicit Captured(StreamHandle stream) : stream_(stream) {
    ORT_DRIVER(cuStreamBeginCapture_v2, stream, kCaptureThreadLocal);
  }
  ~Captured() {
    if (!ended_) api().cuStreamEndCapture(stream_, &graph_);  // what was queued has thrown
    if (graph_) api().cuGraphDestroy(graph_);
  }
  GraphExecHandle finish() {
    ended_ = true;
    ORT_DRIVER(cuStreamEndCapture, stream_, &graph_);
    GraphExecHandle executable = nullptr;
    ORT_DRIVER(cuGraphInstantiateWithFlags, &executable, graph_, 0);
    return executable;
  }

 private:
  StreamHandle stream_;
  GraphHandle graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Event> Stream::record() {
  const Current current(gpu_);
  auto event = std::make_unique<EventOf>(gpu_, gpu_.take_event());
  ORT_DRIVER(cuEventRecord, event->handle(), handle_);
  return event;
}

void Stream::wait(Event& event) {
  auto* own = dynamic_cast<EventOf*>(&event);
  if (!own) return event.synchronize();  // of another provider
  const Current current(gpu_);
  ORT_DRIVER(cuStreamWaitEvent, handle_, own->handle(), 0);
}

void Stream::synchronize() {
  const Current current(gpu_);
  ORT_DRIVER(cuStreamSynchronize, handle_);
}

Gpu& Gpu::of(int index) {
  static std::mutex mutex;
  static auto* gpus = new std::map<int, std::unique_ptr<Gpu>>();  // outlives all that queue
  const std::lock_guard lock(mutex);
  std::unique_ptr<Gpu>& gpu = (*gpus)[index];
  if (!gpu) gpu.reset(new Gpu(index));
  return *gpu;
}

Gpu::Gpu(int index) : index_(index) {
  int count = 0;
  ORT_DRIVER(cuDeviceGetCount, &count);
  check(index >= 0 && index < count, "cuda: there is no device {}, the driver has {}", index,
        count);
  ORT_DRIVER(cuDeviceGet, &device_, index);
  arch_ = attribute(kMajor) * 10 + attribute(kMinor);
  multiprocessors_ = attribute(kMultiprocessors);
  ORT_DRIVER(cuDevicePrimaryCtxRetain, &context_, device_);
  const Current current(*this);
  memory_ = std::make_unique<MemoryOf>(*this, device_);
}

int Gpu::attribute(int which) const {
  int value = 0;
  ORT_DRIVER(cuDeviceGetAttribute, &value, which, device_);
  return value;
}

ort::Stream& Gpu::stream(int use, std::optional<void*> native) {
  const Current current(*this);
  const std::lock_guard lock(mutex_);
  Stream*& own = own_[static_cast<size_t>(use)];
  if (!native && own) return *own;
  auto handle = static_cast<StreamHandle>(native.value_or(nullptr));
  if (!native) ORT_DRIVER(cuStreamCreate, &handle, kNonBlocking);
  std::unique_ptr<Stream>& stream = streams_[handle];
  if (!stream) stream = std::make_unique<Stream>(*this, handle);
  if (!native) own = stream.get();
  return *stream;
}

void Gpu::synchronize() {
  const Current current(*this);
  ORT_DRIVER(cuCtxSynchronize);
}

uint64_t Gpu::switches() const {
  return lender(kind()) && lender(kind())->allows_tf32();
}

// The legacy stream, which may be the caller's, cannot record: a stream of its own does.
std::unique_ptr<Recording> Gpu::record(const std::function<void(ort::Stream&)>& work) {
  const Current current(*this);
  const std::lock_guard lock(recording_mutex_);
  if (!recording_) {
    StreamHandle handle = nullptr;
    ORT_DRIVER(cuStreamCreate, &handle, kNonBlocking);
    recording_ = std::make_unique<Stream>(*this, handle);
  }
  Captured captured(recording_->handle());
  work(*recording_);
  return std::make_unique<GraphOf>(*this, captured.finish());
}

LtHandle Gpu::blas() {
  const Current current(*this);
  const std::lock_guard lock(mutex_);
  if (!blas_) ORT_BLAS(cublasLtCreate, &blas_);
  return blas_;
}

EventHandle Gpu::take_event() {
  const std::lock_guard lock(mutex_);
  if (!idle_events_.empty()) {
    const EventHandle event = idle_events_.back();
    idle_events_.pop_back();
    return event;
  }
  EventHandle event = nullptr;
  ORT_DRIVER(cuEventCreate, &event, kDisableTiming);
  return event;
}

void Gpu::give_event(EventHandle event) {
  const std::lock_guard lock(mutex_);
  idle_events_.push_back(event);
}

Current::Current(const Gpu& gpu) {
  ORT_DRIVER(cuCtxGetCurrent, &before_);
  changed_ = before_ != gpu.context_;
  if (changed_) ORT_DRIVER(cuCtxSetCurrent, gpu.context_);
}

Current::~Current() {
  if (changed_ && before_) api().cuCtxSetCurrent(before_);
}

}  // namespace ort::cuda
