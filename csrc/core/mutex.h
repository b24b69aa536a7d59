// Mutexes of a process that may fork: no other thread holds one of them while it does, as in the
// child nobody would ever give it back. None may lie on a stack: the child has that of one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

namespace ort {

class Mutex {
 public:
  // For a run: where users' functions are called under it, a fork cannot wait for it. In the child
  // it is free.
  enum class For : uint8_t { moments, runs };
  explicit Mutex(For held = For::moments);
  ~Mutex();
  Mutex(const Mutex&) = delete;

  void lock() {
    mutex_.lock();
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void unlock() {
    holder_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

  // Before a fork; and after it in the parent, and in the child. What this thread holds it keeps.
  static void lock_all();
  static void unlock_all();
  static void renew_all();

 private:
  friend class Mutexes;
  bool is_own() const {
    return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};
  const For held_;
  bool locked_for_fork_ = false;
  Mutex *before_ = nullptr, *after_ = nullptr;  // of all
};

// Around what a library does under mutexes of its own: while one lives, other threads that fork
// wait. They wait for no run, so it is for what ends soon and calls no function of a user's.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
};

// How many forks lie between the first process and this one: what a thread of another process was
// making is made by nobody.
int forks();

}  // namespace ort
