// Torch's method is written in C. Its definition is what every bound `f = F.apply` points to, so
// the function there is exchanged, and an `f` made before is replaced too. Called with the GIL.
#include "csrc/torch_bridge/internals/function_apply.h"

#include <torch/csrc/utils/pybind.h>

#include "csrc/core/error.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

struct Replaced {
  PyMethodDef* definition = nullptr;
  PyCFunction original = nullptr;
  py::object with;  // takes the class, the arguments and a dict of keywords
  size_t users = 0;
};

Replaced& replaced() {
  static auto* state = new Replaced;  // Python's objects are not freed after Python
  return *state;
}

bool takes_keywords(const PyMethodDef& definition) {
  return definition.ml_flags & METH_KEYWORDS;
}

PyObject* stand_in(PyObject* cls, PyObject* args, PyObject* kwargs) {
  const py::object with = replaced().with;
  const auto keywords = kwargs ? py::reinterpret_borrow<py::object>(kwargs) : py::dict();
  return PyObject_CallFunctionObjArgs(with.ptr(), cls, args, keywords.ptr(), nullptr);
}

PyObject* stand_in_without_keywords(PyObject* cls, PyObject* args) {
  return stand_in(cls, args, nullptr);
}

// `base`: the class of torch's that has the method.
PyMethodDef* definition_of(const py::object& base) {
  const py::object method = base.attr("apply");
  check(PyCFunction_CheckExact(method.ptr()), "Function.apply is not written in C");
  PyMethodDef* found = reinterpret_cast<PyCFunctionObject*>(method.ptr())->m_ml;
  const int takes = found->ml_flags & ~METH_CLASS;
  check(takes == METH_VARARGS || takes == (METH_VARARGS | METH_KEYWORDS),
        "Function.apply takes its arguments as flags {} say, expected {} or {}", takes,
        METH_VARARGS, METH_VARARGS | METH_KEYWORDS);
  return found;
}

void replace_apply(const py::object& base, py::object with) {
  Replaced& state = replaced();
  PyMethodDef* definition = definition_of(base);
  state.with = std::move(with);
  if (state.users++) return;
  state.definition = definition;
  state.original = definition->ml_meth;
  definition->ml_meth = takes_keywords(*definition)
                            ? reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(stand_in))
                            : stand_in_without_keywords;
}

void restore_apply() {
  Replaced& state = replaced();
  if (--state.users == 0) state.definition->ml_meth = state.original;
}

// What torch's own method gives, however a class overrides it.
py::object original_apply(const py::object& base, const py::object& cls, const py::tuple& args,
                          const py::dict& kwargs) {
  const PyMethodDef* definition = definition_of(base);
  const PyCFunction original = replaced().users ? replaced().original : definition->ml_meth;
  PyObject* result = nullptr;
  if (takes_keywords(*definition)) {
    const auto call =
        reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(original));
    result = call(cls.ptr(), args.ptr(), kwargs.empty() ? nullptr : kwargs.ptr());
  } else {
    result = original(cls.ptr(), args.ptr());
  }
  if (!result) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

}  // namespace

void bind_function_apply(py::module_& m) {
  m.def("replace_apply", &replace_apply, py::arg("base"), py::arg("with"));
  m.def("restore_apply", &restore_apply);
  m.def("original_apply", &original_apply, py::arg("base"), py::arg("cls"), py::arg("args"),
        py::arg("kwargs"));
}

}  // namespace ort::bridge
