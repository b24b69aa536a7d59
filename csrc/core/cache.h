// Values by key, each made once; the least recently used is dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/core/mutex.h"

namespace ort {

template <class Key, class Value>
class Cache {
 public:
  using Kept = std::shared_ptr<Value>;
  // `dropped` is called with what is kept no more.
  explicit Cache(size_t size, std::function<void(const Value&)> dropped = {})
      : size_(size), dropped_(std::move(dropped)) {}

  // `make` is called without a lock: who needs a value that is being made waits for it, who needs
  // another one does not. Where it throws, nothing is kept.
  Kept find(const Key& key, const std::function<Kept()>& make) {
    std::promise<Kept> promise;
    std::shared_future<Kept> value;
    const Item* item = nullptr;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = items_.begin(); at != items_.end(); ++at) {
        if (at->key != key) continue;
        if (is_abandoned(*at)) {
          items_.erase(at);
          break;
        }
        items_.splice(items_.begin(), items_, at);
        value = at->value;
        break;
      }
      if (!value.valid()) {
        items_.push_front({key, promise.get_future().share(), forks()});
        item = &items_.front();
      }
    }
    if (!item) return value.get();
    try {
      const Kept made = make();
      promise.set_value(made);
      drop_oldest();
      return made;
    } catch (...) {
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(mutex_);
      items_.remove_if([&](const Item& other) { return &other == item; });
      throw;
    }
  }

  Kept latest() {  // the one used last that is ready; null before the first
    const std::lock_guard lock(mutex_);
    for (const Item& item : items_)
      if (is_ready(item)) return item.value.get();
    return nullptr;
  }

  std::vector<Kept> all() {  // that are ready
    const std::lock_guard lock(mutex_);
    std::vector<Kept> values;
    for (const Item& item : items_)
      if (is_ready(item)) values.push_back(item.value.get());
    return values;
  }

 private:
  struct Item {
    Key key;
    std::shared_future<Kept> value;
    int forks;  // of the process that makes it
  };

  static bool is_ready(const Item& item) {
    return item.value.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  // Who was making it is a thread of the process that this one was forked from.
  static bool is_abandoned(const Item& item) { return item.forks != forks() && !is_ready(item); }

  // One that is being made stays: who makes it takes it out where it fails.
  void drop_oldest() {
    std::list<Item> old;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = items_.end(); at != items_.begin() && items_.size() > size_;) {
        const auto item = --at;
        if (!is_ready(*item)) continue;
        at = std::next(item);
        old.splice(old.begin(), items_, item);
      }
      for (const Item& item : old)
        if (dropped_) dropped_(*item.value.get());
    }
  }

  const size_t size_;
  const std::function<void(const Value&)> dropped_;
  Mutex mutex_;
  std::list<Item> items_;  // the one used last first
};

// As std::call_once, whose flag a child never sees set where a thread of its parent was about to.
class Once {
 public:
  template <class F>
  void call(const F& f) {
    if (done_.load(std::memory_order_acquire)) return;
    made_.find(0, [&] {
      f();
      done_.store(true, std::memory_order_release);
      return std::make_shared<const char>();
    });
  }

 private:
  std::atomic<bool> done_ = false;
  Cache<int, const char> made_{1};
};

}  // namespace ort
