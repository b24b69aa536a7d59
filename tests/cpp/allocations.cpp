// The program's own operator new, which its libraries call too.
#include "tests/cpp/allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local size_t allocated = 0;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  allocated += bytes;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Of std::stable_sort. A sanitizer's own would not be of the kind that the delete below gives back.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocated += bytes;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace ort {

size_t allocated_bytes() {
  return allocated;
}

}  // namespace ort
