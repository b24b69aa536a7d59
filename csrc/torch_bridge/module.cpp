// The Python module ortmodule._torch: the engine's side of LibTorch. Loaded by ortmodule/_native.py
// after it has checked that the torch in the process is the one named here.
#include <pybind11/pybind11.h>

#include "csrc/core/version.h"

PYBIND11_MODULE(_torch, m) {
  m.doc() = "The bridge between torch's autograd and the ortmodule engine.";
  m.def("version", &ort::version);
  m.def("torch_version", [] { return ORT_TORCH_VERSION; });
}
