// Plans by the values of the symbols; the least recently used is dropped.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/plan/training_plan.h"

namespace ort {

class PlanCache {
 public:
  using Kept = std::shared_ptr<const TrainingPlan>;
  // The plan for feeds of these sizes. `make` is called without a lock: who needs a plan that is
  // being made waits for it, who needs another one does not. Where it throws, nothing is kept.
  Kept find(const std::vector<Sizes>& sizes, const std::function<Symbols()>& solve,
            const std::function<Kept(const Symbols&)>& make);
  Kept latest();  // the one used last that is ready; null before the first

 private:
  using Item = std::pair<Symbols, std::shared_future<Kept>>;
  Kept insert(const Symbols& symbols, std::promise<Kept> promise,
              const std::function<Kept(const Symbols&)>& make);

  std::mutex mutex_;
  std::list<Item> items_;
  std::vector<Sizes> latest_sizes_;  // of the plan at the front
};

}  // namespace ort
