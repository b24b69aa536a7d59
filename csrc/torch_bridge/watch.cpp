// Watch: pointer walks over dicts and lists, and the facts of tensors. Called before every step.
#include "csrc/torch_bridge/watch.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace ort::bridge {
namespace {

// Calls f with each item, keys of dicts too; stops and returns false when f does.
template <class F>
bool each_item(PyObject* container, F f) {
  if (PyDict_Check(container)) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(container, &at, &key, &value))
      if (!f(key) || !f(value)) return false;
    return true;
  }
  if (PyList_Check(container)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(container); ++i)
      if (!f(PyList_GET_ITEM(container, i))) return false;
    return true;
  }
  for (const py::handle& item : py::reinterpret_borrow<py::object>(container))
    if (!f(item.ptr())) return false;
  return true;
}

}  // namespace

Watch::Watch(const py::list& containers, std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)) {
  for (const py::handle& container : containers)
    containers_.push_back(py::reinterpret_borrow<py::object>(container));
  refresh();
}

void Watch::refresh() {
  items_.clear();
  ends_.clear();
  facts_.clear();
  for (const py::object& container : containers_) {
    each_item(container.ptr(), [this](PyObject* item) {
      items_.push_back(item);
      return true;
    });
    ends_.push_back(items_.size());
  }
  for (const at::Tensor& tensor : tensors_) facts_.push_back(facts_of(tensor));
}

bool Watch::unchanged() const {
  size_t at = 0;
  for (size_t i = 0; i < containers_.size(); ++i) {
    const bool same_items = each_item(containers_[i].ptr(), [&](PyObject* item) {
      return at < ends_[i] && items_[at++] == item;
    });
    if (!same_items || at != ends_[i]) return false;
  }
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (!same(tensors_[i], facts_[i])) return false;
  return true;
}

Watch::Facts Watch::facts_of(const at::Tensor& tensor) {
  Facts facts{tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec(), {}};
  if (tensor.layout() == at::kStrided) facts.strides = tensor.strides().vec();
  return facts;
}

bool Watch::same(const at::Tensor& tensor, const Facts& facts) {
  return tensor.scalar_type() == facts.dtype && tensor.requires_grad() == facts.requires_grad &&
         tensor.sizes() == at::IntArrayRef(facts.sizes) &&
         (tensor.layout() != at::kStrided || tensor.strides() == at::IntArrayRef(facts.strides));
}

void bind_watch(py::module_& m) {
  py::class_<Watch>(m, "Watch")
      .def(py::init<const py::list&, std::vector<at::Tensor>>(), py::arg("containers"),
           py::arg("tensors"))
      .def("unchanged", &Watch::unchanged)
      .def("refresh", &Watch::refresh);
}

}  // namespace ort::bridge
