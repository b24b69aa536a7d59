// What of torch's thread-local state an operator may depend on, set for one call. Used by the
// kernels.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ort::aten {

// No autocast, no inference mode and no dispatch mode of the caller; gradients as asked. Restored
// at the end of the scope.
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

}  // namespace ort::aten
