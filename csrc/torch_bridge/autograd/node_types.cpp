// The node's Python type has torch's methods, but for the one that refuses.
#include "csrc/torch_bridge/autograd/node_types.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_cpp_function.h>

namespace ort::bridge {
namespace {

PyObject* refuse(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, kNoHook);
  return nullptr;
}

}  // namespace

void name_node_types(std::initializer_list<const std::type_info*> receivers) {
  static PyTypeObject type;
  static PyMethodDef refused{"register_hook", refuse, METH_O, nullptr};
  torch::autograd::_initFunctionPyTypeObject(type, "ORTModuleBackward", nullptr, nullptr);
  const auto method =
      pybind11::reinterpret_steal<pybind11::object>(PyDescr_NewMethod(&type, &refused));
  if (!method || PyDict_SetItemString(type.tp_dict, refused.ml_name, method.ptr()) != 0)
    throw pybind11::error_already_set();
  PyType_Modified(&type);
  for (const std::type_info* receiver : receivers)
    torch::autograd::registerCppFunction(*receiver, &type);
}

}  // namespace ort::bridge
