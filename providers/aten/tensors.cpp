// Tensors without memory of their own show the frame's; what is kept longer is copied.
#include "providers/aten/tensors.h"

#include <ATen/ops/from_blob.h>

#include "csrc/torch_bridge/exchange/memory.h"

namespace ort::aten {

at::Tensor over(void* data, const Operand& operand) {
  if (!operand.present || operand.dtype == DType::undefined) return {};
  const c10::Device device = bridge::torch_device(operand.device);
  const auto options = at::TensorOptions(bridge::scalar_type_of(operand.dtype)).device(device);
  return at::for_blob(data, at::IntArrayRef(operand.sizes))
      .options(options)
      .target_device(device)
      .make_tensor();
}

at::Tensor copy_of(void* data, const Operand& operand) {
  if (!operand.present) return {};
  at::Tensor copy = bridge::empty(operand);
  if (copy.nbytes() > 0) copy.copy_(over(data, operand));
  return copy;
}

void store(const at::Tensor& tensor, void* data, const Operand& operand, const std::string& what) {
  check(tensor.layout() == at::kStrided && bridge::dtype_of(tensor.scalar_type()) == operand.dtype,
        "{} is {} {}, expected {}", what, tensor.layout(), c10::toString(tensor.scalar_type()),
        operand.dtype);
  check(tensor.sizes() == at::IntArrayRef(operand.sizes), "{} has shape {}, expected {}", what,
        tensor.sizes().vec(), operand.sizes);
  if (tensor.numel() > 0) over(data, operand).copy_(tensor);
}

void check_stream(const Args& args, const std::vector<Operand>& operands) {
  for (const Operand& operand : operands) {
    if (!operand.present || operand.device.is_host()) continue;
    const auto current = bridge::native(bridge::current_stream(operand.device));
    return check(current == args.stream.native(), "torch's stream of {} is not the engine's",
                 operand.device);
  }
}

}  // namespace ort::aten
