// Packs by the constant that they are made of, as long as a kernel holds them.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "csrc/core/meter.h"
#include "csrc/core/mutex.h"
#include "providers/constant.h"

namespace ort::cpu {

// `How` says how a constant is packed, and has ==.
template <class How, class Made>
class PackCache {
 public:
  // What `make` gives, made once. Who needs a pack that is being made waits for it, who needs
  // another one does not.
  template <class Make>
  std::shared_ptr<const Made> find(const Constant& constant, const How& how, const Make& make) {
    const std::shared_ptr<Entry> entry = entry_of(constant.address(), how);
    const std::lock_guard lock(entry->mutex);
    if (auto found = entry->pack.lock()) return found;
    const Metering uncounted(nullptr);  // it is kept for other runs too
    std::shared_ptr<const Made> made = make();
    entry->pack = made;
    return made;
  }

 private:
  struct Entry {
    explicit Entry(How how) : how(std::move(how)) {}
    const How how;
    Mutex mutex;
    std::weak_ptr<const Made> pack;
  };

  std::shared_ptr<Entry> entry_of(const void* address, const How& how) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() > many_) {  // so seldom that a pack costs no more where many live
      std::erase_if(entries_, [](const auto& each) { return is_over(each.second); });
      many_ = 2 * entries_.size();
    }
    const auto [first, last] = entries_.equal_range(address);
    for (auto at = first; at != last; ++at)
      if (at->second->how == how) return at->second;
    return entries_.emplace(address, std::make_shared<Entry>(how))->second;
  }

  // Nobody makes it, and no kernel holds it.
  static bool is_over(const std::shared_ptr<Entry>& entry) {
    if (entry.use_count() > 1) return false;
    const std::lock_guard lock(entry->mutex);
    return entry->pack.expired();
  }

  Mutex mutex_;
  std::multimap<const void*, std::shared_ptr<Entry>> entries_;
  size_t many_ = 0;
};

}  // namespace ort::cpu
