// The Python module ortmodule._C: the engine without torch. Loaded by ortmodule/_native.py.
#include <pybind11/pybind11.h>

#include "csrc/bindings/bindings.h"
#include "csrc/core/error.h"
#include "csrc/core/random_key.h"
#include "csrc/core/version.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "The ortmodule engine; knows no torch.";
  m.def("version", &ort::version);
  m.def("set_seed", &ort::set_random_seed);
  // Local: _torch has another for the same class, and pybind11 may keep both in one place.
  auto& error = pybind11::register_local_exception<ort::Error>(m, "Error", PyExc_RuntimeError);
  pybind11::register_local_exception<ort::NotAccepted>(m, "NotAccepted", error);
  ort::bind_graph(m);
  ort::bind_run(m);
  ort::bind_schema(m);
  ort::bind_options(m);
  ort::bind_session(m);
  ort::bind_runs(m);
  ort::bind_passes(m);
  ort::bind_inspect(m);
}
