// Tensors of other libraries by DLPack (dmlc.github.io/dlpack, version 0: a capsule `dltensor`).
#include <algorithm>
#include <cstring>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace ort {
namespace {

// As the specification has them in memory.
struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: rows lie one after the other
  uint64_t byte_offset;
};

constexpr int32_t kCpu = 1, kPinned = 3;  // memory of the host

DType dtype_from(const DlTensor& tensor) {
  struct Known {
    uint8_t code, bits;
    DType dtype;
  };
  constexpr Known kKnown[] = {
      {0, 8, DType::i8},         {0, 16, DType::i16},        {0, 32, DType::i32},
      {0, 64, DType::i64},       {1, 8, DType::u8},          {1, 16, DType::u16},
      {1, 32, DType::u32},       {1, 64, DType::u64},        {2, 16, DType::f16},
      {2, 32, DType::f32},       {2, 64, DType::f64},        {4, 16, DType::bf16},
      {5, 64, DType::c64},       {5, 128, DType::c128},      {6, 8, DType::boolean},
      {10, 8, DType::f8e4m3fn},  {11, 8, DType::f8e4m3fnuz}, {12, 8, DType::f8e5m2},
      {13, 8, DType::f8e5m2fnuz}};
  for (const Known& known : kKnown)
    if (known.code == tensor.code && known.bits == tensor.bits && tensor.lanes == 1)
      return known.dtype;
  fail("its elements are of DLPack's type code {} with {} bits and {} lanes, which ONNX lacks",
       int{tensor.code}, int{tensor.bits}, tensor.lanes);
}

// Strides of rows that lie one after the other; axes of one element may have any, as may those of
// a tensor without elements.
bool in_rows(const DlTensor& tensor) {
  if (std::count(tensor.shape, tensor.shape + tensor.ndim, 0) > 0) return true;
  int64_t stride = 1;
  for (int32_t axis = tensor.ndim; tensor.strides && axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != stride) return false;
    stride *= tensor.shape[axis];
  }
  return true;
}

Tensor copied(const DlTensor& from, const Tensor& like) {
  Tensor to = Tensor::unwritten(like.dtype, like.sizes);
  const size_t bytes = size_of(like.dtype);
  std::vector<int64_t> at(like.sizes.size(), 0);
  for (int64_t i = 0; i < to.count(); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * from.strides[axis];
    std::memcpy(to.as<uint8_t>() + static_cast<size_t>(i) * bytes,
                static_cast<const uint8_t*>(like.data) + offset * static_cast<int64_t>(bytes),
                bytes);
    for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == like.sizes[axis];) at[axis] = 0;
  }
  return to;
}

py::object capsule_of(const py::handle& object) {
  py::object capsule;
  try {
    // torch gives the memory of such a view, too, which has the numbers without their sign turned.
    check(!py::hasattr(object, "is_neg") || !object.attr("is_neg")().cast<bool>(),
          "its memory has not its numbers but their negatives, expected x.resolve_neg()");
    capsule = object.attr("__dlpack__")();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    fail("its memory cannot be read: {}", py::str(error.value()).cast<std::string>());
  }
  check(PyCapsule_IsValid(capsule.ptr(), "dltensor") == 1,
        "its __dlpack__ gave an object of type {}, expected a capsule 'dltensor' that nobody used",
        Py_TYPE(capsule.ptr())->tp_name);
  return capsule;
}

}  // namespace

Tensor tensor_of_dlpack(const py::handle& object, std::vector<py::object>& lent) {
  py::object capsule = capsule_of(object);
  const auto* tensor = static_cast<DlTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  check(tensor->device_type == kCpu || tensor->device_type == kPinned,
        "it is on DLPack's device type {}, expected the host's memory", tensor->device_type);
  Tensor result;
  result.dtype = dtype_from(*tensor);
  result.sizes.assign(tensor->shape, tensor->shape + tensor->ndim);
  check(tensor->data != nullptr || result.count() == 0, "it has no memory");
  result.data = static_cast<uint8_t*>(tensor->data) + tensor->byte_offset;
  const bool aligned = reinterpret_cast<uintptr_t>(result.data) % size_of(result.dtype) == 0;
  if (!in_rows(*tensor) || !aligned) return copied(*tensor, result);
  lent.push_back(std::move(capsule));  // not renamed, so it gives back what it holds when it goes
  return result;
}

}  // namespace ort
