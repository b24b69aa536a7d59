// Torch's operators on `far`: memory and views are its own, everything else is computed by the
// host's, on the bytes as the device's kernels see them, when what was queued on the current stream
// has run.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include "tests/far/memory.h"
#include "tests/far_torch/device.h"

namespace far {
namespace {

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = Bytes::instance().allocate(bytes);
    if (!data) {
      Schedule::instance().run_all();
      data = Bytes::instance().allocate(bytes);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, data, "far has no ", bytes, " bytes");
    return {data, new Block{data, current()}, &give_back, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    current().synchronize();
    const Bytes& memory = Bytes::instance();
    default_copy_data(memory.seen_by_kernels(to), memory.seen_by_kernels(from), bytes);
  }

 private:
  struct Block {
    void* data;
    Stream& stream;  // on which it was asked for
  };
  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->stream.queue([data = block->data] { Bytes::instance().free(data); });
  }
};

Allocator allocator;

// The same elements as a tensor of the host.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  void* data = Bytes::instance().seen_by_kernels(tensor.data_ptr());
  return at::for_blob(data, tensor.sizes())
      .strides(tensor.strides())
      .options(at::TensorOptions(tensor.scalar_type()).device(at::kCPU))
      .target_device(at::kCPU)
      .make_tensor();
}

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  current().synchronize();
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  const auto numbers = C10_AS_INTARRAYREF_SLOW(sizes);
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(numbers);
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.itemsize();
  const c10::Storage& storage = tensor.storage();
  if (bytes <= storage.nbytes()) return tensor;
  c10::DataPtr data = allocator.allocate(bytes);
  allocator.copy_data(data.get(), storage.data(), storage.nbytes());
  storage.set_data_ptr(std::move(data));
  storage.set_nbytes(bytes);
  return tensor;
}

at::Scalar item(const at::Tensor& tensor) {
  current().synchronize();
  return on_host(tensor).item();
}

at::Tensor& set_source(at::Tensor& tensor, at::Storage source, c10::SymInt offset,
                       c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset.expect_int());
  impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
  return tensor;
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef sizes,
                      c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
  const auto at = offset ? std::optional(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides), at);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef sizes,
                         c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}

void by_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  current().synchronize();
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize);
  m.impl("_local_scalar_dense", &item);
  m.impl("set_.source_Storage_storage_offset", &set_source);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&by_host>());
}

const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  register_hooks();
  return true;
}();

}  // namespace
}  // namespace far

// For Python, by ctypes: the generator's state.
extern "C" {
uint64_t far_seed() {
  return far::generator().current_seed();
}
uint64_t far_offset() {
  return far::generator().get_offset();
}
void far_set_generator(uint64_t seed, uint64_t offset) {
  at::Generator generator = far::generator();
  generator.set_current_seed(seed);
  generator.set_offset(offset);
}
}
