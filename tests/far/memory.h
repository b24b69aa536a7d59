// The memory of the device `far`: addresses that fault when the host touches them. Kernels of the
// device see the same bytes at other addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace far {

class Bytes {
 public:
  static Bytes& instance();
  void* allocate(size_t bytes);  // null: there is no room; filled with NaNs
  void free(void* data);
  void* allocate_mapped(size_t bytes);  // of the host's, zeros; kernels may touch it
  bool holds(const void* data) const;
  bool has(const void* data, size_t bytes) const;  // within one block
  // Where a kernel of the device finds what lies at an address; the host's own stay.
  void* seen_by_kernels(const void* data) const;
  void limit(size_t bytes);  // of what may be allocated
  size_t live() const;

 private:
  Bytes();
  static constexpr size_t kSpace = size_t{4} << 30;
  uint8_t* faulting_;
  uint8_t* mapped_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> used_;       // by offset: bytes
  std::map<uint8_t*, size_t> of_host_;  // that kernels may touch
  size_t live_ = 0, limit_ = kSpace;
};

}  // namespace far
