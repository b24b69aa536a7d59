// The memory plan: a property over random lifetimes, and cases whose answer is known.
#include "csrc/plan/place.h"

#include <gtest/gtest.h>

#include <random>

namespace ort {
namespace {

bool overlap(const Lifetime& a, size_t at, const Lifetime& b, size_t bt) {
  const bool time = a.first <= b.last && b.first <= a.last;
  const bool memory = at < bt + b.bytes && bt < at + a.bytes;
  return time && memory && a.bytes > 0 && b.bytes > 0;
}

TEST(Memory, NoTwoLiveValuesOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lives;
    const int count = 1 + static_cast<int>(random() % 80);
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(random() % 40);
      lives.push_back({random() % 5 == 0 ? 0 : random() % 5000, first,
                       first + static_cast<int>(random() % 12)});
    }
    const auto offsets = place(lives, 64);
    for (size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(offsets[i] % 64, 0u);
      for (size_t j = 0; j < i; ++j)
        ASSERT_FALSE(overlap(lives[i], offsets[i], lives[j], offsets[j]))
            << "round " << round << ": " << i << ", " << j;
    }
  }
}

TEST(Memory, ValuesThatNeverMeetShareAPlace) {
  const std::vector<Lifetime> lives{{128, 0, 1}, {128, 2, 3}, {128, 4, 5}};
  const auto offsets = place(lives, 64);
  EXPECT_EQ(extent(lives, offsets), 128u);
}

TEST(Memory, ASmallValueFillsTheGapBetweenLargeOnes) {
  const std::vector<Lifetime> lives{{256, 0, 9}, {256, 0, 4}, {256, 0, 9}, {64, 5, 9}};
  const auto offsets = place(lives, 64);
  EXPECT_EQ(extent(lives, offsets), 768u);
}

}  // namespace
}  // namespace ort
