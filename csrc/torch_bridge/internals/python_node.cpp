// Of torch, in every version from 2.11 on: _initFunctionPyTypeObject and registerCppFunction
// (torch/csrc/autograd/python_cpp_function.h), by which its own nodes get their types.
#include "csrc/torch_bridge/internals/python_node.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_cpp_function.h>

namespace ort::bridge {
namespace {

const char* refusal = "";

PyObject* refuse(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, refusal);
  return nullptr;
}

}  // namespace

void name_node_types(const char* name, const char* why,
                     std::initializer_list<const std::type_info*> nodes) {
  static PyTypeObject type;
  static PyMethodDef refused{"register_hook", refuse, METH_O, nullptr};
  refusal = why;
  torch::autograd::_initFunctionPyTypeObject(type, name, nullptr, nullptr);
  const auto method =
      pybind11::reinterpret_steal<pybind11::object>(PyDescr_NewMethod(&type, &refused));
  if (!method || PyDict_SetItemString(type.tp_dict, refused.ml_name, method.ptr()) != 0)
    throw pybind11::error_already_set();
  PyType_Modified(&type);
  for (const std::type_info* node : nodes) torch::autograd::registerCppFunction(*node, &type);
}

}  // namespace ort::bridge
