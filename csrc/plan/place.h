// Offsets from lifetimes: a pure function.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ort {

struct Lifetime {
  size_t bytes;
  int first, last;  // steps, both included
};

// Offsets such that no two lifetimes that overlap in time overlap in memory: first fit, largest
// first.
std::vector<size_t> place(std::span<const Lifetime> lifetimes, size_t align);

// The end of the highest placed lifetime.
size_t extent(std::span<const Lifetime> lifetimes, std::span<const size_t> offsets);

}  // namespace ort
