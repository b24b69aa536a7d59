// Counts what a thread allocates with `new`.
#pragma once

#include <cstddef>

namespace ort {

size_t allocated_bytes();  // by this thread, so far

}  // namespace ort
