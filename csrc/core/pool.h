// Large blocks of memory, reused: fresh pages cost eight times a warm pass. Huge pages are advised.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort {

// An owned block of the pool, 64-byte aligned, contents undefined; given back when destroyed.
class Block {
 public:
  explicit Block(size_t bytes = 0);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint8_t* release();  // the caller gives it back with pool_give
 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

uint8_t* pool_take(size_t bytes, size_t* capacity);
void pool_give(uint8_t* data, size_t capacity);
// Of blocks in use and idle ones.
size_t pool_bytes();

// Throws unless the machine has that much memory at all: sizes may come from a hostile file, and an
// overcommitted allocation would end the process when it is touched.
void check_memory(size_t bytes);

}  // namespace ort
