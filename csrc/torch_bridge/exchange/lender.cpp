// Torch's memory on CUDA devices and its switches, for the provider of these devices: one allocator
// keeps what both leave idle. Nothing here needs CUDA's headers.
#include "providers/lender.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include "csrc/core/error.h"
#include "csrc/torch_bridge/exchange/memory.h"

namespace ort::bridge {
namespace {

class TorchLender final : public Lender {
 public:
  // Torch's allocator takes the current stream, so only for that one.
  void* allocate(int device, size_t bytes, void* stream) override {
    if (!at::globalContext().hasCUDA()) return nullptr;
    const Device on{DeviceKind::cuda, device};
    const c10::DeviceGuard guard(torch_device(on));
    if (native(current_stream(on)) != stream) return nullptr;
    try {
      return c10::GetAllocator(c10::DeviceType::CUDA)->raw_allocate(bytes);
    } catch (const c10::OutOfMemoryError& error) {
      throw OutOfMemory(error.what_without_backtrace());
    }
  }
  void free(int device, void* data) override {
    const c10::DeviceGuard guard(torch_device({DeviceKind::cuda, device}));
    c10::GetAllocator(c10::DeviceType::CUDA)->raw_deallocate(data);
  }
  void trim(int) override {
    if (at::globalContext().hasCUDA()) c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache();
  }
  bool allows_tf32() override {
    return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
           at::Float32Precision::TF32;
  }
};

[[maybe_unused]] const bool lent = [] {
  lend(DeviceKind::cuda, *new TorchLender());
  return true;
}();

}  // namespace
}  // namespace ort::bridge
