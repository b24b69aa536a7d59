// First fit over the lifetimes that are alive at the same time, largest first, ties by index.
#include "csrc/plan/memory.h"

#include <algorithm>
#include <numeric>

namespace ort {

std::vector<size_t> place(std::span<const Lifetime> lifetimes, size_t align) {
  std::vector<size_t> order(lifetimes.size()), offsets(lifetimes.size(), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (const size_t index : order) {
    const Lifetime& life = lifetimes[index];
    if (life.bytes == 0) continue;
    const size_t bytes = (life.bytes + align - 1) / align * align;
    size_t at = 0;
    for (const size_t other : placed) {
      const Lifetime& neighbour = lifetimes[other];
      if (neighbour.last < life.first || life.last < neighbour.first) continue;
      if (at + bytes <= offsets[other]) break;
      at = std::max(at, (offsets[other] + neighbour.bytes + align - 1) / align * align);
    }
    offsets[index] = at;
    const auto position =
        std::upper_bound(placed.begin(), placed.end(), at,
                         [&](size_t value, size_t i) { return value < offsets[i]; });
    placed.insert(position, index);
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
