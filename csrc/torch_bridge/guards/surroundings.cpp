// All of it is thread-local, atomic or a global of Python's: the whole question takes well under a
// microsecond.
#include "csrc/torch_bridge/guards/surroundings.h"

#include <torch/csrc/utils/pybind.h>

#include "csrc/torch_bridge/internals/modes.h"

namespace py = pybind11;

namespace ort::bridge {
namespace {

thread_local int asides = 0;  // how often this thread was told to leave the engine out

bool anything() {
  return asides > 0 || has_saved_tensors_hooks() || has_function_modes() || active_mode() ||
         has_python_flags();
}

}  // namespace

void bind_surroundings(py::module_& m) {
  m.def("active", &active_mode);
  m.def("anything", &anything);
  m.def("step_aside", [](int by) { asides += by; }, py::arg("by"));
  m.def("foreign", &foreign, py::arg("tensor"));
  // What Python must look at: is there any hook on saved tensors, any torch-function mode?
  m.def("has_saved_tensors_hooks", &has_saved_tensors_hooks);
  m.def("has_function_modes", &has_function_modes);
}

}  // namespace ort::bridge
