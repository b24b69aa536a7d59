// A session's run whose feed and results are bound once.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/session/bound_plan.h"
#include "csrc/session/inference_session.h"

namespace ort {

class BoundRun {
 public:
  // `into`: by output asked, memory to write to; without data: memory of the run's own. The session
  // and what the items and `into` borrow must outlive it.
  BoundRun(InferenceSession& session, std::vector<size_t> outputs, std::vector<Item> inputs,
           std::vector<Tensor> into);
  // Reads what was fed where it lies. From the second run on it allocates nothing of its own, where
  // no size depends on data, no string is given and the session has no limits. A call waits while
  // another one runs. Throws where an output does not have the sizes of its memory.
  void run();
  // Of the latest run; tensors are the same memory after each one.
  const std::vector<Item>& results() const { return results_; }

 private:
  void run_anew();

  InferenceSession& session_;
  const std::vector<size_t> outputs_;
  const std::vector<Item> inputs_;
  std::vector<Tensor> into_;
  std::mutex mutex_;                 // of what follows
  std::shared_ptr<BoundPlan> plan_;  // null: each run is one of the session's
  std::vector<Item> results_;
};

}  // namespace ort
