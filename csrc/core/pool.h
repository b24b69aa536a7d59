// Large blocks of memory, reused: fresh pages cost eight times a warm pass. Huge pages are advised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csrc/core/error.h"

namespace ort {

// From the system itself, which gets it back at once, where memory freed inside the heap may stay:
// zeros at a multiple of a huge page, which are advised. `bytes` is a multiple of kPage. Null where
// the system has none.
constexpr size_t kPage = 4096, kHugePage = 2u << 20;
uint8_t* map_pages(size_t bytes);
void unmap_pages(void* memory, size_t bytes);

// An owned block of the pool, 64-byte aligned, contents undefined; given back when destroyed.
class Block {
 public:
  explicit Block(size_t bytes = 0);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

uint8_t* pool_take(size_t bytes, size_t* capacity);
void pool_give(uint8_t* data, size_t capacity);
// Gives idle blocks back to the system.
void pool_trim();
// Of blocks in use and idle ones.
size_t pool_bytes();

// In the words of torch's allocator, by which what looks for a batch that fits (accelerate,
// Trainer, Lightning) knows an error of the host's memory.
template <class... Args>
[[noreturn]] void out_of_memory(std::string_view text, const Args&... args) {
  throw OutOfMemory("the host is out of memory. DefaultCPUAllocator: can't allocate memory: " +
                    format(text, args...));
}

// Throws OutOfMemory unless the machine has that much memory at all: sizes may come from a hostile
// file, and an overcommitted allocation would end the process when it is touched.
void check_memory(size_t bytes);

}  // namespace ort
