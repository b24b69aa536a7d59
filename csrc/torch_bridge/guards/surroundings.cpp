// All of it is thread-local, atomic or a global of Python's: the whole question takes well under a
// microsecond.
#include "csrc/torch_bridge/guards/surroundings.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace ort::bridge {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

struct Named {
  DispatchKeySet keys;
  const char* name;
};

constexpr Named kModes[] = {
    {kTransforms, "a transform of torch.func (vmap, grad, jvp) is active"},
    {DispatchKeySet(DispatchKey::Tracer), "torch.jit.trace is active"},
    {DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot}),
     "a TorchDispatchMode is active"},
    {DispatchKeySet({DispatchKey::PythonDispatcher, DispatchKey::PreDispatch}),
     "torch's Python dispatcher is active"},
    {DispatchKeySet(DispatchKey::Functionalize), "functionalisation is active"},
};

constexpr Named kTensors[] = {
    {DispatchKeySet(
         {DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched}),
     "belongs to a transform of torch.func"},
    {DispatchKeySet(DispatchKey::Functionalize), "is being functionalised"},
    {DispatchKeySet(DispatchKey::Python), "has a dispatch of its own"},
    {DispatchKeySet(DispatchKey::ZeroTensor), "has no memory"},
};

// What rules the engine out, or null.
const char* active() {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet keys = local.included_ - local.excluded_;
  for (const Named& mode : kModes)
    if (keys.has_any(mode.keys)) return mode.name;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0))
    return "forward-mode differentiation is active";
  if (torch::autograd::AnomalyMode::is_enabled()) return "autograd's anomaly detection is active";
  return nullptr;
}

bool has_saved_tensors_hooks() {
  return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

bool has_function_modes() {
  return at::impl::PythonTorchFunctionTLS::stack_len() > 0;
}

// A global of a module that is loaded, borrowed, or null; with the GIL held.
PyObject* global(PyObject* module, PyObject* name) {
  PyObject* found = PyDict_GetItem(PyImport_GetModuleDict(), module);
  return found ? PyDict_GetItem(PyModule_GetDict(found), name) : nullptr;
}

bool is_set(PyObject* module, PyObject* name) {
  PyObject* value = global(module, name);
  return value && PyObject_IsTrue(value) == 1;
}

// torch 2.11 has a flag of the process; a later one asks a function, for this thread.
bool fx_traces() {
  static PyObject* const fx = PyUnicode_InternFromString("torch.fx._symbolic_trace");
  static PyObject* const flag = PyUnicode_InternFromString("_is_fx_tracing_flag");
  static PyObject* const asked = PyUnicode_InternFromString("_get_is_fx_tracing");
  PyObject* function = global(fx, asked);
  if (!function) return is_set(fx, flag);
  const auto answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(function));
  if (!answer) throw py::error_already_set();
  return PyObject_IsTrue(answer.ptr()) == 1;
}

bool has_flags() {
  static PyObject* const compiled = PyUnicode_InternFromString("torch._dynamo.compiled_autograd");
  static PyObject* const enabled = PyUnicode_InternFromString("compiled_autograd_enabled");
  return is_set(compiled, enabled) || fx_traces();
}

thread_local int asides = 0;  // how often this thread was told to leave the engine out

bool anything() {
  return asides > 0 || has_saved_tensors_hooks() || has_function_modes() || active() || has_flags();
}

}  // namespace

const char* foreign(const at::Tensor& tensor) {
  for (const Named& kind : kTensors)
    if (tensor.key_set().has_any(kind.keys)) return kind.name;
  return nullptr;
}

void bind_surroundings(py::module_& m) {
  m.def("active", &active);
  m.def("anything", &anything);
  m.def("step_aside", [](int by) { asides += by; }, py::arg("by"));
  m.def("foreign", &foreign, py::arg("tensor"));
  // What Python must look at: is there any hook on saved tensors, any torch-function mode?
  m.def("has_saved_tensors_hooks", &has_saved_tensors_hooks);
  m.def("has_function_modes", &has_function_modes);
}

}  // namespace ort::bridge
