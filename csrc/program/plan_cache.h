// Plans by the values of the symbols.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "csrc/core/cache.h"
#include "csrc/plan/training_plan.h"

namespace ort {

class PlanCache {
 public:
  using Kept = std::shared_ptr<const TrainingPlan>;
  // The plan for feeds of these sizes; symbols are solved where they are not those of the last one.
  Kept find(const std::vector<Sizes>& sizes, const std::function<Symbols()>& solve,
            const std::function<Kept(const Symbols&)>& make);
  // The last one, if it is for these sizes; null otherwise.
  template <class Same>
  Kept last_if(const Same& same) {
    const std::lock_guard lock(mutex_);
    return last_ && same(last_sizes_) ? last_ : nullptr;
  }
  Kept latest() { return plans_.latest(); }

 private:
  Cache<Symbols, const TrainingPlan> plans_{32};
  Mutex mutex_;  // of what follows
  std::vector<Sizes> last_sizes_;
  Kept last_;
};

}  // namespace ort
