// A session's run whose feed and results are bound once.
#pragma once

#include <memory>
#include <vector>

#include "csrc/program/bound_plan.h"
#include "csrc/session/inference_session.h"

namespace ort {

class BoundRun {
 public:
  // `into`: by output asked, memory to write to; Tensor(): memory of the run's own. The session and
  // what the items and `into` borrow must outlive it.
  BoundRun(InferenceSession& session, std::vector<size_t> outputs, std::vector<Item> inputs,
           std::vector<Tensor> into);
  // Reads what was fed where it lies. From the second run on it allocates nothing of its own, where
  // no size depends on data, no string is given and the session has no limits: then the results are
  // the same memory each time. A call waits while another one runs. Throws where an output does not
  // have the sizes of its memory.
  using Results = std::shared_ptr<const std::vector<Item>>;
  Results run(const std::atomic<bool>* ended = nullptr);  // which ends it when it is set

 private:
  Results run_anew(const std::atomic<bool>* ended);

  InferenceSession& session_;
  const std::vector<size_t> outputs_;
  const std::vector<Item> inputs_;
  std::vector<Tensor> into_;
  Mutex mutex_{Mutex::For::runs};    // of what follows and of the memory given
  std::shared_ptr<BoundPlan> plan_;  // null: each run is one of the session's
  Results results_;                  // of the plan
};

}  // namespace ort
