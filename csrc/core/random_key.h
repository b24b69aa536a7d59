// Keys of random numbers that no caller gives: a new one for each that asks.
#pragma once

#include <cstdint>

namespace ort {

// Of the process, drawn from the system until `set_random_seed` says where to begin.
uint64_t next_random_key();
// The keys after it are the same in every process.
void set_random_seed(uint64_t seed);

}  // namespace ort
