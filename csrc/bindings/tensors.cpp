// Tensors to and from numpy.
#include <pybind11/stl.h>

#include <cstring>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace ort {

Tensor tensor_of(const py::array& array) {
  const auto name = py::str(array.dtype().attr("name")).cast<std::string>();
  const py::array plain = py::array::ensure(array, py::array::c_style);
  Sizes sizes(plain.shape(), plain.shape() + plain.ndim());
  if (plain.dtype().kind() == 'U' || plain.dtype().kind() == 'O' || plain.dtype().kind() == 'S') {
    std::vector<std::string> texts;
    for (const py::handle& item : plain.attr("ravel")().attr("tolist")())
      texts.push_back(py::isinstance<py::bytes>(item) ? item.cast<std::string>()
                                                      : py::str(item).cast<std::string>());
    return Tensor::of_strings(std::move(texts), std::move(sizes));
  }
  Tensor result = Tensor::empty(dtype_named(name), sizes);
  if (result.bytes() > 0) std::memcpy(result.data, plain.data(), result.bytes());
  return result;
}

py::array array_of(const Tensor& tensor) {
  if (tensor.dtype == DType::string) {
    py::list items;
    for (int64_t i = 0; i < tensor.count(); ++i) items.append(py::str(text_of(tensor, i)));
    return py::module_::import("numpy")
        .attr("array")(items, "object")
        .attr("reshape")(tensor.sizes)
        .cast<py::array>();
  }
  const std::string name(name_of(tensor.dtype));
  const bool beside = tensor.dtype == DType::bf16 || is_narrow(tensor.dtype);
  const py::dtype dtype =
      beside ? py::dtype::from_args(py::module_::import("ml_dtypes").attr(name.c_str()))
             : py::dtype(name);
  auto* keep = new Tensor(tensor);
  const py::capsule owner(keep, [](void* p) { delete static_cast<Tensor*>(p); });
  return py::array(dtype, tensor.sizes, tensor.data, owner);
}

Item item_of(const py::handle& value) {
  if (value.is_none()) return {};
  if (!py::isinstance<py::list>(value)) return tensor_of(py::array::ensure(value));
  Sequence sequence;
  for (const py::handle& item : value) sequence.items.push_back(item_of(item));
  return sequence;
}

py::object object_of(const Item& item) {
  if (item.is_tensor()) return array_of(item.tensor());
  if (const auto* optional = std::get_if<Optional>(&item))
    return optional->held ? object_of(*optional->held) : py::none();
  const auto* sequence = std::get_if<Sequence>(&item);
  check(sequence != nullptr, "a result is of no kind that Python has");
  py::list items;
  for (const Item& held : sequence->items) items.append(object_of(held));
  return items;
}

}  // namespace ort
