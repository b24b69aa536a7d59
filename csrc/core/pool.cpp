// Size classes of the pool: idle blocks are kept, newest first, within a bound.
#include "csrc/core/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "csrc/core/env.h"
#include "csrc/core/mutex.h"

namespace ort {
namespace {

// Idle blocks are bounded so that all of the pool's stays within this share of the most that was
// ever in use at once: what other sizes left behind goes back to the system, the oldest first.
constexpr size_t kSlackShare = 4, kSlack = 32u << 20;

struct Idle {
  uint8_t* data;
  uint64_t since;
};

struct Pool {
  Mutex mutex;
  std::map<size_t, std::vector<Idle>> idle;  // by capacity, oldest first
  size_t used_bytes = 0, most_used = 0, idle_bytes = 0;
  uint64_t clock = 0;

  void use(size_t capacity) {
    used_bytes += capacity;
    most_used = std::max(most_used, used_bytes);
  }
  bool drop_oldest();
};

void release(uint8_t* data, size_t capacity) {
  if (capacity >= kHugePage)
    unmap_pages(data, capacity);
  else
    std::free(data);
}

bool Pool::drop_oldest() {
  auto oldest = idle.end();
  for (auto at = idle.begin(); at != idle.end(); ++at)
    if (!at->second.empty() &&
        (oldest == idle.end() || at->second.front().since < oldest->second.front().since))
      oldest = at;
  if (oldest == idle.end()) return false;
  release(oldest->second.front().data, oldest->first);
  idle_bytes -= oldest->first;
  oldest->second.erase(oldest->second.begin());
  return true;
}

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

uint8_t* from_system(size_t capacity) {
  if (capacity >= kHugePage) return map_pages(capacity);
  return static_cast<uint8_t*>(std::aligned_alloc(64, capacity));
}

uint8_t* fresh(size_t capacity) {
  uint8_t* memory = from_system(capacity);
  if (!memory) {
    pool_trim();
    memory = from_system(capacity);
  }
  if (!memory) out_of_memory("{} bytes", capacity);
  return memory;
}

uint8_t* idle_or_fresh(size_t capacity) {
  {
    std::lock_guard lock(pool().mutex);
    auto& blocks = pool().idle[capacity];
    if (!blocks.empty()) {
      pool().use(capacity);
      uint8_t* data = blocks.back().data;
      blocks.pop_back();
      pool().idle_bytes -= capacity;
      return data;
    }
  }
  uint8_t* data = fresh(capacity);
  std::lock_guard lock(pool().mutex);
  pool().use(capacity);
  return data;
}

}  // namespace

// More is mapped than asked, and the ends around the aligned part are unmapped.
uint8_t* map_pages(size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(mapped, aligned - start);
  auto* memory = reinterpret_cast<uint8_t*>(aligned);
  if (const size_t after = start + kHugePage - aligned; after > 0) munmap(memory + bytes, after);
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}
void unmap_pages(void* memory, size_t bytes) {
  munmap(memory, bytes);
}

void check_memory(size_t bytes) {
  static const size_t all =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > all) out_of_memory("{} bytes are needed, the machine has {}", bytes, all);
}

uint8_t* pool_take(size_t bytes, size_t* capacity) {
  static const bool poison = env::poison();
  check_memory(bytes);
  *capacity = capacity_for(bytes);
  uint8_t* data = idle_or_fresh(*capacity);
  if (poison) std::memset(data, 0xff, *capacity);
  return data;
}

void pool_give(uint8_t* data, size_t capacity) {
  if (!data) return;
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  p.idle[capacity].push_back({data, p.clock++});
  p.used_bytes -= capacity;
  p.idle_bytes += capacity;
  const size_t bound = p.most_used + p.most_used / kSlackShare + kSlack;
  while (p.used_bytes + p.idle_bytes > bound && p.drop_oldest()) {
  }
}

void pool_trim() {
  std::lock_guard lock(pool().mutex);
  while (pool().drop_oldest()) {
  }
}

size_t pool_bytes() {
  std::lock_guard lock(pool().mutex);
  return pool().used_bytes + pool().idle_bytes;
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

}  // namespace ort
