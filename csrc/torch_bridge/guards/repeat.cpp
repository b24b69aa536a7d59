// Repeat: one walk over a call's arguments, comparing with what an earlier walk recorded.
#include "csrc/torch_bridge/guards/repeat.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>

namespace py = pybind11;

namespace ort::bridge {
namespace {

bool is_constant(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

// Of two constants of one type; floats by their bits, so that nan equals nan and 0.0 not -0.0.
bool equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (PyFloat_CheckExact(a))
    return std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(a)) ==
           std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(b));
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

Py_ssize_t size_of_container(PyObject* value) {
  return PyDict_CheckExact(value) ? PyDict_Size(value) : PySequence_Fast_GET_SIZE(value);
}

}  // namespace

struct Repeat::Seen {
  size_t item = 0;
  std::vector<at::Tensor> tensors;
  std::vector<PyObject*> containers;

  // Of a call whose lists and dicts were all different ones; one that is met again is another call.
  bool meets(PyObject* container) {
    if (std::ranges::find(containers, container) != containers.end()) return false;
    containers.push_back(container);
    return true;
  }
};

std::unique_ptr<Repeat> Repeat::of(py::handle args, py::handle kwargs) {
  auto repeat = std::make_unique<Repeat>();
  std::vector<at::Tensor> tensors;
  if (!repeat->record(args.ptr(), tensors) || !repeat->record(kwargs.ptr(), tensors)) return {};
  return repeat;
}

bool Repeat::record(PyObject* value, std::vector<at::Tensor>& tensors) {
  PyTypeObject* type = Py_TYPE(value);
  if (THPVariable_CheckExact(value)) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    const TensorFacts facts = facts_of(value, tensors);
    if (attributes_of(value) || facts.foreign || facts.layout != at::kStrided) return false;
    items_.push_back({type, {}});
    tensors_.push_back({facts, tensor.sizes().vec(), tensor.strides().vec()});
    tensors.push_back(tensor);
    return true;
  }
  if (is_constant(value)) {
    items_.push_back({type, py::reinterpret_borrow<py::object>(value)});
    return true;
  }
  if (PyDict_CheckExact(value)) {
    items_.push_back({type, {}, size_of_container(value)});
    PyObject *key = nullptr, *item = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(value, &at, &key, &item)) {
      if (!PyUnicode_CheckExact(key)) return false;
      items_.push_back({Py_TYPE(key), py::reinterpret_borrow<py::object>(key)});
      if (!record(item, tensors)) return false;
    }
    return true;
  }
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return false;
  items_.push_back({type, {}, size_of_container(value)});
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
    if (!record(PySequence_Fast_GET_ITEM(value, i), tensors)) return false;
  return true;
}

py::object Repeat::match(py::handle args, py::handle kwargs) const {
  Seen seen;
  if (Modes::now() != modes_ || !matches(args.ptr(), seen) || !matches(kwargs.ptr(), seen))
    return py::none();
  py::list tensors;
  for (const at::Tensor& tensor : seen.tensors)
    tensors.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)));
  return tensors;
}

bool Repeat::matches(PyObject* value, Seen& seen) const {
  if (seen.item == items_.size()) return false;
  const Item& item = items_[seen.item++];
  if (Py_TYPE(value) != item.type) return false;
  if (THPVariable_CheckExact(value)) return matches_tensor(value, seen);
  if (item.value) return equal(item.value.ptr(), value);
  if (!PyTuple_CheckExact(value) && !seen.meets(value)) return false;
  return size_of_container(value) == item.count && matches_items(value, seen);
}

bool Repeat::matches_items(PyObject* value, Seen& seen) const {
  if (!PyDict_CheckExact(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      if (!matches(PySequence_Fast_GET_ITEM(value, i), seen)) return false;
    return true;
  }
  PyObject *key = nullptr, *item = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(value, &at, &key, &item))
    if (!matches(key, seen) || !matches(item, seen)) return false;
  return true;
}

bool Repeat::matches_tensor(PyObject* value, Seen& seen) const {
  const at::Tensor& tensor = THPVariable_Unpack(value);
  const Exact& exact = tensors_[seen.tensors.size()];
  if (attributes_of(value) || facts_of(value, seen.tensors) != exact.facts ||
      tensor.sizes() != at::IntArrayRef(exact.sizes) ||
      tensor.strides() != at::IntArrayRef(exact.strides))
    return false;
  seen.tensors.push_back(tensor);
  return true;
}

void bind_repeat(py::module_& m) {
  py::class_<Repeat>(m, "Repeat")
      .def_static("of", &Repeat::of, py::arg("args"), py::arg("kwargs"))
      .def("match", &Repeat::match, py::arg("args"), py::arg("kwargs"));
}

}  // namespace ort::bridge
