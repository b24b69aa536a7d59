// Size classes of the pool: idle blocks are kept, newest first, within a bound.
#include "csrc/core/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/core/error.h"

namespace ort {
namespace {

constexpr size_t kHugePage = 2u << 20;

struct Pool {
  std::mutex mutex;
  std::map<size_t, std::vector<uint8_t*>> idle;  // by capacity
};

Pool& pool() {
  static Pool* instance = new Pool();
  return *instance;
}

// Small blocks by powers of two, large ones by whole huge pages with an eighth of slack.
size_t capacity_for(size_t bytes) {
  if (bytes < kHugePage) {
    size_t capacity = 256;
    while (capacity < bytes) capacity *= 2;
    return capacity;
  }
  size_t step = kHugePage;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

uint8_t* fresh(size_t capacity) {
  const size_t align = capacity >= kHugePage ? kHugePage : 64;
  void* memory = std::aligned_alloc(align, capacity);
  check(memory != nullptr, "out of memory: {} bytes", capacity);
  if (capacity >= kHugePage) madvise(memory, capacity, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(memory);
}

}  // namespace

void check_memory(size_t bytes) {
  static const size_t all =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  check(bytes <= all, "out of memory: {} bytes are needed, the machine has {}", bytes, all);
}

uint8_t* pool_take(size_t bytes, size_t* capacity) {
  check_memory(bytes);
  *capacity = capacity_for(bytes);
  {
    std::lock_guard lock(pool().mutex);
    auto& blocks = pool().idle[*capacity];
    if (!blocks.empty()) {
      uint8_t* data = blocks.back();
      blocks.pop_back();
      return data;
    }
  }
  return fresh(*capacity);
}

void pool_give(uint8_t* data, size_t capacity) {
  if (!data) return;
  std::lock_guard lock(pool().mutex);
  pool().idle[capacity].push_back(data);
}

size_t pool_trim() {
  std::lock_guard lock(pool().mutex);
  size_t freed = 0;
  for (auto& [capacity, blocks] : pool().idle) {
    freed += capacity * blocks.size();
    for (uint8_t* data : blocks) std::free(data);
    blocks.clear();
  }
  return freed;
}

Block::Block(size_t bytes) {
  if (bytes > 0) data_ = pool_take(bytes, &bytes_);
}
Block::~Block() {
  pool_give(data_, bytes_);
}
Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
uint8_t* Block::release() {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

}  // namespace ort
