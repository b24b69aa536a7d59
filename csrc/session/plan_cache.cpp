// A promise stands for a plan while it is made.
#include "csrc/session/plan_cache.h"

#include <algorithm>

namespace ort {
namespace {

constexpr size_t kKept = 32;

}  // namespace

PlanCache::Kept PlanCache::find(const std::vector<Sizes>& sizes,
                                const std::function<Symbols()>& solve,
                                const std::function<Kept(const Symbols&)>& make) {
  std::unique_lock lock(mutex_);
  if (!items_.empty() && sizes == latest_sizes_) {
    const auto plan = items_.front().second;
    lock.unlock();
    return plan.get();
  }
  const Symbols symbols = solve();
  const auto found = std::find_if(items_.begin(), items_.end(),
                                  [&](const Item& item) { return item.first == symbols; });
  latest_sizes_ = sizes;
  if (found != items_.end()) {
    items_.splice(items_.begin(), items_, found);
    const auto plan = items_.front().second;
    lock.unlock();
    return plan.get();
  }
  std::promise<Kept> promise;
  items_.emplace_front(symbols, promise.get_future().share());
  if (items_.size() > kKept) items_.pop_back();
  lock.unlock();
  return insert(symbols, std::move(promise), make);
}

PlanCache::Kept PlanCache::insert(const Symbols& symbols, std::promise<Kept> promise,
                                  const std::function<Kept(const Symbols&)>& make) {
  try {
    Kept plan = make(symbols);
    promise.set_value(plan);
    return plan;
  } catch (...) {
    promise.set_exception(std::current_exception());
    std::lock_guard lock(mutex_);
    items_.remove_if([&](const Item& item) { return item.first == symbols; });
    latest_sizes_.clear();
    throw;
  }
}

PlanCache::Kept PlanCache::latest() {
  std::lock_guard lock(mutex_);
  for (const auto& [symbols, plan] : items_)
    if (plan.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return plan.get();
  return nullptr;
}

}  // namespace ort
