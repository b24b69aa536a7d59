// Memory of devices: blocks that give themselves back, and constants that are uploaded once.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "csrc/core/device.h"
#include "csrc/core/mutex.h"
#include "csrc/core/tensor.h"
#include "csrc/graph/graph.h"

namespace ort {

// A device that steps run on; of the host there is no runtime.
struct PlanDevice {
  Device device;
  DeviceRuntime* runtime;
  bool checks = false;  // whether kernels that run late there may find something wrong
};

// Gives back the memory that the host and these devices keep idle.
void trim_memory(std::span<const PlanDevice> devices);

// Calls it; where there is no memory, caches are given back and it is called once more.
template <class F>
void with_memory(std::span<const PlanDevice> devices, F&& allocate) {
  try {
    return allocate();
  } catch (const OutOfMemory&) {
    trim_memory(devices);
  }
  allocate();
}

// Memory of a device, for work on one of its streams.
class DeviceBlock {
 public:
  DeviceBlock(Memory& memory, size_t bytes, Stream& stream);
  ~DeviceBlock();
  DeviceBlock(DeviceBlock&& other) noexcept;
  DeviceBlock(const DeviceBlock&) = delete;
  uint8_t* data() const { return data_; }

 private:
  Memory& memory_;
  Stream& stream_;
  size_t bytes_;
  uint8_t* data_;
};

using Uploaded = std::shared_ptr<const DeviceBlock>;

// The bytes of a tensor of the host, there for every stream when this returns.
Uploaded upload(const PlanDevice& device, const Tensor& tensor);

// The constants of a graph on its devices: each is uploaded once, for all plans.
class Uploads {
 public:
  Uploaded find(ValueId constant, const PlanDevice& device, const Tensor& tensor);

 private:
  Mutex mutex_;
  std::map<std::pair<ValueId, Device>, Uploaded> uploaded_;
};

}  // namespace ort
