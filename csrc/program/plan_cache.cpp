// Most calls have the sizes of the one before.
#include "csrc/program/plan_cache.h"

namespace ort {

PlanCache::Kept PlanCache::find(const std::vector<Sizes>& sizes,
                                const std::function<Symbols()>& solve,
                                const std::function<Kept(const Symbols&)>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (last_ && sizes == last_sizes_) return last_;
  }
  const Symbols symbols = solve();
  Kept plan = plans_.find(symbols, [&] { return make(symbols); });
  Kept before;  // goes when the lock is open: a plan waits for its devices
  const std::lock_guard lock(mutex_);
  before = std::exchange(last_, plan);
  last_sizes_ = sizes;
  return plan;
}

}  // namespace ort
