// First fit over the lifetimes that are alive at the same time, largest first, ties by index.
#include "csrc/plan/place.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace ort {
namespace {

// Beside more than these a lifetime gets a place of its own at the end.
constexpr size_t kMostNeighbours = 4096;

// What was placed, found by time, so that a chain takes linear time and not the square of it.
class Timeline {
 public:
  explicit Timeline(size_t steps)
      : leaves_(std::bit_ceil(std::max<size_t>(steps, 1))), spans_(2 * leaves_), begin_(leaves_) {}

  void add(size_t index, const Lifetime& life) {
    begin_[static_cast<size_t>(life.first)].push_back(index);
    size_t low = leaves_ + static_cast<size_t>(life.first),
           high = leaves_ + static_cast<size_t>(life.last) + 1;
    for (; low < high; low /= 2, high /= 2) {
      if (low & 1) spans_[low++].push_back(index);
      if (high & 1) spans_[--high].push_back(index);
    }
  }

  // Those that are alive at the same time; of too many not all.
  std::vector<size_t> beside(const Lifetime& life) const {
    std::vector<size_t> found;
    const auto take = [&](const std::vector<size_t>& some) {
      found.insert(found.end(), some.begin(), some.end());
      return found.size() <= kMostNeighbours;
    };
    for (size_t span = leaves_ + static_cast<size_t>(life.first); span > 0; span /= 2)
      if (!take(spans_[span])) return found;
    for (int step = life.first + 1; step <= life.last; ++step)
      if (!take(begin_[static_cast<size_t>(step)])) return found;
    return found;
  }

 private:
  size_t leaves_;
  std::vector<std::vector<size_t>> spans_;  // a binary tree over the steps, the root at 1
  std::vector<std::vector<size_t>> begin_;  // by first step
};

size_t steps_of(std::span<const Lifetime> lifetimes) {
  int last = 0;
  for (const Lifetime& life : lifetimes) last = std::max(last, life.last);
  return static_cast<size_t>(last) + 1;
}

}  // namespace

std::vector<size_t> place(std::span<const Lifetime> lifetimes, size_t align) {
  std::vector<size_t> order(lifetimes.size()), offsets(lifetimes.size(), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  const auto aligned = [&](size_t bytes) { return (bytes + align - 1) / align * align; };
  Timeline placed(steps_of(lifetimes));
  size_t end = 0;
  for (const size_t index : order) {
    const Lifetime& life = lifetimes[index];
    if (life.bytes == 0) continue;
    const size_t bytes = aligned(life.bytes);
    std::vector<size_t> beside = placed.beside(life);
    const bool crowded = beside.size() > kMostNeighbours;
    size_t at = crowded ? end : 0;
    if (crowded) beside.clear();
    std::sort(beside.begin(), beside.end(),
              [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    for (const size_t other : beside) {
      if (at + bytes <= offsets[other]) break;
      at = std::max(at, offsets[other] + aligned(lifetimes[other].bytes));
    }
    offsets[index] = at;
    end = std::max(end, at + bytes);
    placed.add(index, life);
  }
  return offsets;
}

size_t extent(std::span<const Lifetime> lifetimes, std::span<const size_t> offsets) {
  size_t end = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i)
    end = std::max(end, offsets[i] + lifetimes[i].bytes);
  return end;
}

}  // namespace ort
