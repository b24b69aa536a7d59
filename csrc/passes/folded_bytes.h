// What constant folding may add to a session's graphs.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace ort {

// Bytes by which folding makes a program's graphs larger, in a total with those of the programs
// inside: a file may name a thousand large constants, each in a body of its own.
class FoldedBytes {
 public:
  using Total = std::shared_ptr<std::atomic<size_t>>;
  explicit FoldedBytes(Total total = {});  // null: one of its own
  ~FoldedBytes() { *total_ -= own_; }
  FoldedBytes(const FoldedBytes&) = delete;
  bool fits(size_t more) const;
  void add(size_t made, size_t freed);
  const Total& total() const { return total_; }

 private:
  Total total_;
  size_t own_ = 0;
};

}  // namespace ort
