// The modes and transforms of torch that are active around a call, and the tensors that belong to
// one. guards/surroundings.cpp asks at the top of each call.
//
// Of torch, in every version from 2.11 on: dispatch keys and the guards that set them
// (c10/core/impl/LocalDispatchKeySet.h), and AutogradState, which is saved and put back whole, as
// versions add to it. modes.cpp says what else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ort::bridge {

// The dispatch keys of transforms and modes that would see each operator of the module.
inline constexpr c10::DispatchKeySet kTransforms({
    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
    c10::DispatchKey::FuncTorchDynamicLayerBackMode,
    c10::DispatchKey::FuncTorchVmapMode,
    c10::DispatchKey::VmapMode,
});

// A scope in which they see nothing; `on`: or one that changes nothing.
class WithoutTransforms {
 public:
  explicit WithoutTransforms(bool on = true) : off_(on ? kTransforms : c10::DispatchKeySet()) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard off_;
};

// A scope with no autocast, no inference mode and no dispatch mode of the caller, for an operator
// of torch's; gradients as asked.
class ThreadState {
 public:
  explicit ThreadState(bool gradients)
      : saved_(c10::AutogradState::get_tls_state()),
        keys_(c10::default_included_set, c10::default_excluded_set) {
    c10::AutogradState state = saved_;
    state.set_grad_mode(gradients);
    state.set_inference_mode(false);
    c10::AutogradState::set_tls_state(state);
  }
  ~ThreadState() { c10::AutogradState::set_tls_state(saved_); }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  c10::AutogradState saved_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

// What is active in this thread that rules the engine out; null: nothing is.
const char* active_mode();
// Why a tensor is more than its elements in memory; null for a plain one.
const char* foreign(const at::Tensor& tensor);

bool has_saved_tensors_hooks();
bool has_function_modes();
// Whether torch.fx traces or compiled autograd is on: flags of Python's; with the GIL held.
bool has_python_flags();

}  // namespace ort::bridge
