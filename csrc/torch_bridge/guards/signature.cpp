// Facts are read without a dispatch: a call that repeats an earlier one asks for them every time.
#include "csrc/torch_bridge/guards/signature.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <numeric>

#include "csrc/torch_bridge/internals/modes.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

// Null where a tensor has no memory that it could share.
const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() && !foreign(tensor) ? tensor.storage().data() : nullptr;
}

// The first of the tensors that `test` holds for; the number of tensors when there is none.
template <class Test>
size_t first_of(const std::vector<at::Tensor>& tensors, Test test) {
  size_t i = 0;
  while (i < tensors.size() && !test(tensors[i])) ++i;
  return i;
}

size_t first_same(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return first_of(tensors, [&](const at::Tensor& other) { return other.is_same(tensor); });
}

size_t first_shared(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  const void* memory = memory_of(tensor);
  if (!memory) return tensors.size();
  return first_of(tensors, [&](const at::Tensor& other) { return memory_of(other) == memory; });
}

bool lies_in(const at::Tensor& tensor, const std::vector<int64_t>& order) {
  int64_t expected = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    if (tensor.size(*axis) != 1 && tensor.stride(*axis) != expected) return false;
    expected *= tensor.size(*axis);
  }
  return true;
}

size_t mixed(size_t hash, size_t value) {
  return hash ^ (value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2));
}

}  // namespace

Modes Modes::now() {
  const at::Context& context = at::globalContext();
  return {at::GradMode::is_enabled(),
          c10::InferenceMode::is_enabled(),
          Autocast::now(),
          c10::get_default_dtype_as_scalartype(),
          context.deterministicAlgorithms(),
          context.deterministicAlgorithmsWarnOnly(),
          context.deterministicFillUninitializedMemory()};
}

TensorFacts facts_of(PyObject* value, const std::vector<at::Tensor>& before) {
  const at::Tensor& tensor = THPVariable_Unpack(value);
  return {Py_TYPE(value),
          tensor.scalar_type(),
          tensor.device(),
          tensor.layout(),
          tensor.requires_grad(),
          tensor.is_conj(),
          tensor.is_neg(),
          foreign(tensor),
          first_same(before, tensor),
          first_shared(before, tensor)};
}

namespace {

// What torch's compilers note on a tensor is nothing that forward reads.
bool is_noted_by_dynamo(PyObject* name) {
  return PyUnicode_Check(name) && py::cast<std::string_view>(name).starts_with("_dynamo_");
}

}  // namespace

PyObject* attributes_of(PyObject* tensor) {
  PyObject** attributes = _PyObject_GetDictPtr(tensor);
  if (!attributes || !*attributes) return nullptr;
  PyObject* name = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(*attributes, &at, &name, nullptr))
    if (!is_noted_by_dynamo(name)) return *attributes;
  return nullptr;
}

Signature::Entry Signature::entry_of(PyObject* value, const std::vector<at::Tensor>& before) {
  const at::Tensor& tensor = THPVariable_Unpack(value);
  Entry entry{facts_of(value, before), tensor.dim(), {}, {}, {}};
  if (PyObject* attributes = attributes_of(value))
    for (const auto& item : py::reinterpret_borrow<py::dict>(attributes))
      if (!is_noted_by_dynamo(item.first.ptr())) entry.attributes.push_back(py::str(item.first));
  if (entry.facts.foreign || entry.facts.layout != at::kStrided || tensor.is_contiguous())
    return entry;
  Axes order(static_cast<size_t>(entry.rank));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  if (lies_in(tensor, order))
    entry.order = std::move(order);
  else
    entry.strides = tensor.strides().vec();
  return entry;
}

Signature::Signature(const py::list& tensors) {
  std::vector<at::Tensor> before;
  for (const py::handle& item : tensors) {
    tensors_.push_back(entry_of(item.ptr(), before));
    before.push_back(THPVariable_Unpack(item.ptr()));
  }
}

size_t Signature::hash() const {
  size_t hash = mixed(tensors_.size(), modes_.grad);
  for (const Entry& entry : tensors_) {
    hash = mixed(hash, static_cast<size_t>(entry.facts.dtype));
    hash = mixed(hash, static_cast<size_t>(entry.rank));
    hash = mixed(hash, entry.facts.same);
    hash = mixed(hash, entry.facts.requires_grad);
  }
  return hash;
}

void bind_signature(py::module_& m) {
  py::class_<Signature>(m, "Signature")
      .def(py::init<const py::list&>(), py::arg("tensors"))
      .def("__eq__",
           [](const Signature& a, const py::object& b) {
             return py::isinstance<Signature>(b) && a == b.cast<const Signature&>();
           })
      .def("__hash__", &Signature::hash);
  m.def("autocast", &autocast_devices);
}

}  // namespace ort::bridge
