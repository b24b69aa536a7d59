// Of torch, in every version from 2.11 on: the dispatch keys of this thread
// (c10/core/impl/LocalDispatchKeySet.h) and their names, the levels of forward-mode
// differentiation, AnomalyMode, the stacks of hooks on saved tensors (ATen/SavedTensorHooks.h) and
// of torch-function modes (ATen/PythonTorchFunctionTLS.h). Of torch's Python: a flag of compiled
// autograd, and that of torch.fx, which is a global in 2.11 and a function for a thread later.
#include "csrc/torch_bridge/internals/modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
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

}  // namespace

const char* active_mode() {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet keys = local.included_ - local.excluded_;
  for (const Named& mode : kModes)
    if (keys.has_any(mode.keys)) return mode.name;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0))
    return "forward-mode differentiation is active";
  if (c10::InferenceMode::is_enabled() && c10::GradMode::is_enabled())
    return "gradients are enabled in inference mode";
  if (torch::autograd::AnomalyMode::is_enabled()) return "autograd's anomaly detection is active";
  return nullptr;
}

bool has_saved_tensors_hooks() {
  return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

bool has_function_modes() {
  return at::impl::PythonTorchFunctionTLS::stack_len() > 0;
}

bool has_python_flags() {
  static PyObject* const compiled = PyUnicode_InternFromString("torch._dynamo.compiled_autograd");
  static PyObject* const enabled = PyUnicode_InternFromString("compiled_autograd_enabled");
  return is_set(compiled, enabled) || fx_traces();
}

const char* foreign(const at::Tensor& tensor) {
  for (const Named& kind : kTensors)
    if (tensor.key_set().has_any(kind.keys)) return kind.name;
  return nullptr;
}

}  // namespace ort::bridge
