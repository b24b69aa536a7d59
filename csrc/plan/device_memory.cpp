// A block is freed after what was queued on its stream.
#include "csrc/plan/device_memory.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "csrc/core/log.h"
#include "csrc/core/pool.h"
#include "providers/constant.h"

namespace ort {

void trim_memory(std::span<const PlanDevice> devices) {
  pool_trim();
  for (const PlanDevice& device : devices)
    if (device.runtime) device.runtime->memory().trim();
}

DeviceBlock::DeviceBlock(Memory& memory, size_t bytes, Stream& stream)
    : memory_(memory),
      stream_(stream),
      bytes_(bytes),
      data_(bytes ? static_cast<uint8_t*>(memory.allocate(bytes, stream)) : nullptr) {}

// A device that is lost fails here too, where nothing may be thrown.
DeviceBlock::~DeviceBlock() {
  try {
    if (data_) memory_.free(data_, bytes_, stream_);
  } catch (const std::exception& error) {
    log("memory of a device is not freed: {}", error.what());
  }
}

DeviceBlock::DeviceBlock(DeviceBlock&& other) noexcept
    : memory_(other.memory_),
      stream_(other.stream_),
      bytes_(other.bytes_),
      data_(std::exchange(other.data_, nullptr)) {}

Uploaded upload(const PlanDevice& device, const Tensor& tensor) {
  Memory& memory = device.runtime->memory();
  Stream& stream = device.runtime->stream(kCompute);
  auto block = std::make_shared<DeviceBlock>(memory, std::max<size_t>(tensor.bytes(), 1), stream);
  const auto bytes = hold(tensor);
  memory.copy(block->data(), bytes.get(), tensor.bytes(), CopyKind::to_device, stream);
  stream.synchronize();  // once a binding; the first run may be on other streams
  return block;
}

Uploaded Uploads::find(ValueId constant, const PlanDevice& device, const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  Uploaded& uploaded = uploaded_[{constant, device.device}];
  if (!uploaded) uploaded = upload(device, tensor);
  return uploaded;
}

}  // namespace ort
