// A GPU as the runtime sees it: its primary context, its memory, streams and events.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/core/device.h"
#include "providers/cuda/api.h"

namespace ort::cuda {

class Gpu;

class Stream final : public ort::Stream {
 public:
  Stream(Gpu& gpu, StreamHandle handle) : gpu_(gpu), handle_(handle) {}
  std::unique_ptr<Event> record() override;
  void wait(Event& event) override;
  void synchronize() override;
  void* native() const override { return handle_; }
  StreamHandle handle() const { return handle_; }
  Gpu& gpu() const { return gpu_; }

 private:
  Gpu& gpu_;
  StreamHandle handle_;
};

class Gpu final : public DeviceRuntime {
 public:
  // Opens the libraries and the device at the first call for it.
  static Gpu& of(int index);
  Memory& memory() override { return *memory_; }
  ort::Stream& stream(int use, std::optional<void*> native) override;
  void synchronize() override;
  uint64_t switches() const override;  // whether float32 products may round to TF32
  std::unique_ptr<Recording> record(const std::function<void(ort::Stream&)>& work) override;

  int index() const { return index_; }
  int arch() const { return arch_; }  // 90 for compute capability 9.0
  int multiprocessors() const { return multiprocessors_; }
  LtHandle blas();  // made at its first use
  EventHandle take_event();
  void give_event(EventHandle event);

 private:
  friend class Current;
  explicit Gpu(int index);
  int attribute(int which) const;

  int index_, device_ = 0, arch_ = 0, multiprocessors_ = 0;
  ContextHandle context_ = nullptr;
  std::unique_ptr<Memory> memory_;
  std::mutex mutex_;
  std::map<StreamHandle, std::unique_ptr<Stream>> streams_;
  std::array<Stream*, kStreams> own_{};
  std::vector<EventHandle> idle_events_;
  LtHandle blas_ = nullptr;
  std::mutex recording_mutex_;
  std::unique_ptr<Stream> recording_;  // a stream that records and runs nothing
};

// For one scope the device's context is the calling thread's; then what was before.
class Current {
 public:
  explicit Current(const Gpu& gpu);
  ~Current();
  Current(const Current&) = delete;

 private:
  ContextHandle before_ = nullptr;
  bool changed_ = false;
};

}  // namespace ort::cuda
