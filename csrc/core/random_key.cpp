// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators": a counter, mixed.
#include "csrc/core/random_key.h"

#include <atomic>
#include <random>

namespace ort {
namespace {

uint64_t drawn() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::atomic<uint64_t>& state() {
  static std::atomic<uint64_t> state{drawn()};
  return state;
}

}  // namespace

uint64_t next_random_key() {
  uint64_t z = state().fetch_add(0x9E3779B97F4A7C15) + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

void set_random_seed(uint64_t seed) {
  state().store(seed);
}

}  // namespace ort
