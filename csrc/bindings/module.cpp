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

void add_kinds(pybind11::module_& m, const pybind11::handle& error) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const std::string name = std::string("ortmodule._C.") + kKinds[i];
    classes[i] = PyErr_NewException(name.c_str(), error.ptr(), nullptr);
    m.attr(kKinds[i]) = pybind11::handle(classes[i]);
  }
  pybind11::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ort::KindedError& error) {
      PyErr_SetString(classes[static_cast<size_t>(error.kind)], error.what());
    }
  });
}

}  // namespace

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
}
