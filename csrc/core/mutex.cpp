// All mutexes in one list, which is locked with them.
#include "csrc/core/mutex.h"

#include <chrono>
#include <new>
#include <shared_mutex>
#include <utility>

namespace ort {
namespace {

std::atomic<int> forked = 0;

}  // namespace

class Mutexes {
 public:
  static Mutexes& all() {
    static auto* all = new Mutexes;  // never deleted: mutexes of other files may go later
    return *all;
  }

  void add(Mutex& mutex) {
    const std::lock_guard lock(list_);
    mutex.after_ = first_;
    if (first_) first_->before_ = &mutex;
    first_ = &mutex;
  }
  void remove(Mutex& mutex) {
    const std::lock_guard lock(list_);
    (mutex.before_ ? mutex.before_->after_ : first_) = mutex.after_;
    if (mutex.after_) mutex.after_->before_ = mutex.before_;
  }

  // Others take them in any order, so nothing is held while one is waited for. Who holds one for
  // longer than anything of ours takes may wait for the forking thread itself: it then forks.
  void lock() {
    constexpr std::chrono::seconds kLongest{30};
    const auto begin = std::chrono::steady_clock::now();
    while (!try_lock() && std::chrono::steady_clock::now() - begin < kLongest)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void unlock() {
    if (forks_ != std::this_thread::get_id()) return;
    forks_ = std::thread::id();
    unlock_each();
    libraries_.unlock();
    list_.unlock();
  }
  // They count threads that wait for them, and none of these is here: all are made anew.
  void renew() {
    for (Mutex* mutex = first_; mutex; mutex = mutex->after_) {
      if (mutex->is_own() && !mutex->locked_for_fork_) continue;
      new (&mutex->mutex_) std::mutex;
      mutex->holder_ = std::thread::id();
      mutex->locked_for_fork_ = false;
    }
    new (&libraries_) std::shared_mutex;
    new (&list_) std::mutex;
    forks_ = std::thread::id();
  }

  void begin_library() { libraries_.lock_shared(); }
  void end_library() { libraries_.unlock_shared(); }

 private:
  bool try_lock() {
    list_.lock();
    if (libraries_.try_lock()) {
      if (try_lock_each()) {
        forks_ = std::this_thread::get_id();
        return true;
      }
      unlock_each();
      libraries_.unlock();
    }
    list_.unlock();
    return false;
  }
  bool try_lock_each() {
    for (Mutex* mutex = first_; mutex; mutex = mutex->after_) {
      if (mutex->held_ == Mutex::For::runs || mutex->is_own()) continue;
      if (!mutex->try_lock()) return false;
      mutex->locked_for_fork_ = true;
    }
    return true;
  }
  void unlock_each() {
    for (Mutex* mutex = first_; mutex; mutex = mutex->after_)
      if (std::exchange(mutex->locked_for_fork_, false)) mutex->unlock();
  }

  std::mutex list_;
  std::shared_mutex libraries_;
  Mutex* first_ = nullptr;
  std::atomic<std::thread::id> forks_{};  // the thread that has locked all
};

Mutex::Mutex(For held) : held_(held) {
  Mutexes::all().add(*this);
}
Mutex::~Mutex() {
  Mutexes::all().remove(*this);
}

void Mutex::lock_all() {
  Mutexes::all().lock();
}
void Mutex::unlock_all() {
  Mutexes::all().unlock();
}
void Mutex::renew_all() {
  ++forked;
  Mutexes::all().renew();
}

NoFork::NoFork() {
  Mutexes::all().begin_library();
}
NoFork::~NoFork() {
  Mutexes::all().end_library();
}

int forks() {
  return forked;
}

}  // namespace ort
