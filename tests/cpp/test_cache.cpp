// Values by key: made once, without a lock, dropped by age, gone where making them throws.
#include "csrc/core/cache.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ort
