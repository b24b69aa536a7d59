// An allocator of torch's over the pool: gradients and outputs reuse warm pages.
#include "csrc/torch_bridge/exchange/memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include "csrc/core/error.h"
#include "csrc/core/pool.h"
#include "csrc/torch_bridge/internals/new_tensor.h"
#include "csrc/torch_bridge/internals/streams.h"

namespace ort::bridge {
namespace {

struct Held {
  uint8_t* data;
  size_t capacity;
};

void give_back(void* context) {
  auto* held = static_cast<Held*>(context);
  pool_give(held->data, held->capacity);
  delete held;
}

class PoolAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    auto* held = new Held();
    held->data = pool_take(bytes, &held->capacity);
    return {held->data, held, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

PoolAllocator& allocator() {
  static auto* instance = new PoolAllocator();
  return *instance;
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kLong:
      return DType::i64;
    case at::kInt:
      return DType::i32;
    case at::kShort:
      return DType::i16;
    case at::kChar:
      return DType::i8;
    case at::kByte:
      return DType::u8;
    case at::kBool:
      return DType::boolean;
    case at::kComplexFloat:
      return DType::c64;
    case at::kComplexDouble:
      return DType::c128;
    default:
      fail("torch dtype {} has no place in the engine", c10::toString(type));
  }
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble})
    if (dtype_of(type) == dtype) return type;
  fail("dtype {} has no torch tensor", dtype);
}

Device device_of(c10::Device device) {
  switch (device.type()) {
    case c10::DeviceType::CPU:
      return {};
    case c10::DeviceType::CUDA:
      return {DeviceKind::cuda, device.index()};
    case c10::DeviceType::PrivateUse1:
      return {DeviceKind::private_use, device.index()};
    default:
      fail("torch device {} has no place in the engine", device.str());
  }
}

c10::Device torch_device(Device device) {
  if (device.is_host()) return c10::DeviceType::CPU;
  const auto type =
      device.kind == DeviceKind::cuda ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
  return {type, static_cast<c10::DeviceIndex>(device.index)};
}

std::optional<c10::Stream> current_stream(Device device) {
  if (device.is_host()) return std::nullopt;
  return current_stream_of(torch_device(device));
}

std::optional<void*> native(std::optional<c10::Stream> stream) {
  if (!stream) return std::nullopt;
  return native_handle(*stream);
}

at::Tensor empty(const Operand& type) {
  const at::ScalarType dtype = scalar_type_of(type.dtype);
  if (!type.device.is_host()) try {
      return at::empty(type.sizes, at::TensorOptions(dtype).device(torch_device(type.device)));
    } catch (const c10::OutOfMemoryError& error) {
      throw OutOfMemory(error.what_without_backtrace());
    }
  return empty_of(allocator(), type.sizes, dtype);
}

}  // namespace ort::bridge
