// The Python module ortmodule._C: the engine without torch. Loaded by ortmodule/_native.py.
#include <pybind11/pybind11.h>

#include "csrc/bindings/bindings.h"
#include "csrc/core/random_key.h"
#include "csrc/core/version.h"
#include "csrc/graph/error_kind.h"

namespace {

// By kind: the names that onnxruntime's scripts catch.
constexpr const char* kKinds[] = {"InvalidArgument", "InvalidProtobuf", "InvalidGraph",
                                  "NotImplemented"};
PyObject* classes[std::size(kKinds)];
PyObject* plain;  // of those that have no kind

// With the exception that it comes of, if a user's code raised one.
void set_error(PyObject* kind, const ort::Error& error) {
  if (!error.cause) return PyErr_SetString(kind, error.what());
  auto* cause = static_cast<PyObject*>(const_cast<void*>(error.cause.get()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause)), cause);
  pybind11::raise_from(kind, error.what());
}

void add_kinds(pybind11::module_& m, const pybind11::handle& base) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const std::string name = std::string("ortmodule._C.") + kKinds[i];
    classes[i] = PyErr_NewException(name.c_str(), base.ptr(), nullptr);
    m.attr(kKinds[i]) = pybind11::handle(classes[i]);
  }
  plain = base.ptr();
  pybind11::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ort::KindedError& error) {
      set_error(classes[static_cast<size_t>(error.kind)], error);
    } catch (const ort::Error& error) {
      if (!error.cause) throw;
      set_error(plain, error);
    }
  });
}

}  // namespace

pybind11::handle ort::error_class() {
  return plain;
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "The ortmodule engine; knows no torch.";
  m.def("version", &ort::version);
  m.def("set_seed", &ort::set_random_seed);
  // Local: _torch has another for the same class, and pybind11 may keep both in one place.
  auto& error = pybind11::register_local_exception<ort::Error>(m, "Error", PyExc_RuntimeError);
  pybind11::register_local_exception<ort::NotAccepted>(m, "NotAccepted", error);
  add_kinds(m, error);
  ort::bind_graph(m);
  ort::bind_run(m);
  ort::bind_schema(m);
  ort::bind_options(m);
  ort::bind_session(m);
  ort::bind_model(m);
  ort::bind_runs(m);
  ort::bind_passes(m);
  ort::bind_inspect(m);
  ort::bind_custom_op(m);
}
