// Values by key: made once, without a lock, dropped by age, gone where making them throws.
#include "csrc/core/cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "csrc/core/error.h"

namespace ort {
namespace {

using Squares = Cache<int, const int>;

std::shared_ptr<const int> square(Squares& cache, int key, std::atomic<int>* made = nullptr) {
  return cache.find(key, [&] {
    if (made) ++*made;
    return std::make_shared<const int>(key * key);
  });
}

TEST(Cache, TheLeastRecentlyUsedIsDroppedAndTold) {
  std::vector<int> dropped;
  Squares cache(2, [&](const int& value) { dropped.push_back(value); });
  square(cache, 2);
  square(cache, 3);
  square(cache, 2);
  square(cache, 4);
  EXPECT_EQ(dropped, std::vector<int>{9});
  EXPECT_EQ(*cache.latest(), 16);
  EXPECT_EQ(cache.all().size(), 2u);
}

TEST(Cache, ThreadsWaitForTheOneThatMakesIt) {
  Squares cache(4);
  std::atomic<int> made = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] { EXPECT_EQ(*square(cache, t % 2, &made), t % 2); });
  }
  EXPECT_EQ(made, 2);
}

// Two keys at once: each is made while the other one is, which a lock around it would forbid.
TEST(Cache, OneIsMadeWhileAnotherIs) {
  Squares cache(4);
  const auto nested = cache.find(1, [&] { return square(cache, 5); });
  EXPECT_EQ(*nested, 25);
}

TEST(Cache, WhatThrowsIsNotKept) {
  Squares cache(1);
  EXPECT_THROW(cache.find(1, []() -> Squares::Kept { throw Error("not today"); }), Error);
  EXPECT_EQ(cache.latest(), nullptr);
  EXPECT_EQ(*square(cache, 1), 1);
}

// What `work` says in a child of this process.
template <class F>
bool holds_in_child(const F& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // which ends a child that waits for ever
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

TEST(Cache, AChildMakesWhatItsParentWasMaking) {
  Squares cache(2);
  Once once;
  std::promise<void> begun, end;
  std::thread maker([&] {
    once.call([&] {
      cache.find(3, [&] {
        begun.set_value();
        end.get_future().wait();
        return std::make_shared<const int>(9);
      });
    });
  });
  begun.get_future().wait();
  EXPECT_TRUE(holds_in_child([&] {
    int calls = 0;
    for (int i = 0; i < 2; ++i) once.call([&] { ++calls; });
    return calls == 1 && *square(cache, 3) == 9 && *square(cache, 4) == 16;
  }));
  end.set_value();
  maker.join();
  EXPECT_EQ(*square(cache, 3), 9);
}

TEST(Mutex, AForkWaitsForOtherThreadsButNotForRuns) {
  Mutex own, other, run(Mutex::For::runs);
  std::promise<void> locked;
  std::atomic<bool> forking = false, forked = false;
  own.lock();
  std::thread holder([&] {
    const std::lock_guard holds_run(run);
    {
      const std::lock_guard holds_other(other);
      locked.set_value();
      while (!forking) std::this_thread::yield();
    }
    while (!forked) std::this_thread::yield();
  });
  locked.get_future().wait();
  forking = true;
  EXPECT_TRUE(holds_in_child([&] {
    const bool free = other.try_lock() && run.try_lock();
    own.unlock();
    return free && own.try_lock();
  }));
  EXPECT_FALSE(run.try_lock());
  forked = true;
  holder.join();
  EXPECT_TRUE(run.try_lock());
  run.unlock();
  own.unlock();
}

}  // namespace
}  // namespace ort
