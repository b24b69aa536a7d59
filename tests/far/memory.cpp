// One file in memory, mapped twice: without any access, and for kernels.
#include "tests/far/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace far {
namespace {

constexpr size_t kAlign = 256;

}  // namespace

Bytes& Bytes::instance() {
  static auto* bytes = new Bytes();
  return *bytes;
}

Bytes::Bytes() {
  const int file = memfd_create("far", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kSpace)) != 0) std::abort();
  const auto map = [&](int access) {
    void* at = mmap(nullptr, kSpace, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) std::abort();
    return static_cast<uint8_t*>(at);
  };
  faulting_ = map(PROT_NONE);
  mapped_ = map(PROT_READ | PROT_WRITE);
}

void* Bytes::allocate(size_t bytes) {
  const size_t wanted = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  std::lock_guard lock(mutex_);
  if (live_ + wanted > limit_) return nullptr;
  size_t at = 0;
  for (const auto& [begin, size] : used_) {
    if (begin - at >= wanted) break;
    at = begin + size;
  }
  if (kSpace - at < wanted) return nullptr;
  used_[at] = wanted;
  live_ += wanted;
  std::memset(mapped_ + at, 0xff, wanted);
  return faulting_ + at;
}

void Bytes::free(void* data) {
  std::lock_guard lock(mutex_);
  const auto found = used_.find(static_cast<size_t>(static_cast<uint8_t*>(data) - faulting_));
  if (found == used_.end()) std::abort();
  std::memset(mapped_ + found->first, 0xff, found->second);
  live_ -= found->second;
  used_.erase(found);
}

void* Bytes::allocate_mapped(size_t bytes) {
  auto* data =
      static_cast<uint8_t*>(std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign));
  std::memset(data, 0, bytes);
  std::lock_guard lock(mutex_);
  of_host_[data] = bytes;
  return data;
}

bool Bytes::holds(const void* data) const {
  const auto* at = static_cast<const uint8_t*>(data);
  return at >= faulting_ && at < faulting_ + kSpace;
}

bool Bytes::has(const void* data, size_t bytes) const {
  std::lock_guard lock(mutex_);
  if (!holds(data)) {
    auto* first = static_cast<uint8_t*>(const_cast<void*>(data));
    auto block = of_host_.upper_bound(first);
    return block != of_host_.begin() && first + bytes <= (--block)->first + block->second;
  }
  const auto at = static_cast<size_t>(static_cast<const uint8_t*>(data) - faulting_);
  auto block = used_.upper_bound(at);
  if (block == used_.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

void* Bytes::seen_by_kernels(const void* data) const {
  auto* at = static_cast<uint8_t*>(const_cast<void*>(data));
  return holds(data) ? mapped_ + (at - faulting_) : at;
}

void Bytes::limit(size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes ? bytes : kSpace;
}

size_t Bytes::live() const {
  std::lock_guard lock(mutex_);
  return live_;
}

}  // namespace far
