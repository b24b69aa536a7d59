// Counts the memory that a run holds, wherever it is allocated: tensors and what holds them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace ort {

class Meter {
 public:
  explicit Meter(size_t limit) : limit_(limit) {}
  void require(size_t more) const;  // throws unless there is room for so much more
  void add(size_t bytes);           // or throws, and counts nothing
  void drop(size_t bytes) noexcept { held_ -= bytes; }

 private:
  size_t limit_;
  std::atomic<size_t> held_ = 0;
};

// What this thread allocates is counted by `meter`, to the end of the scope; null: by none.
class Metering {
 public:
  explicit Metering(std::shared_ptr<Meter> meter);
  ~Metering();
  Metering(const Metering&) = delete;

 private:
  std::shared_ptr<Meter> before_;
};

// Bytes of something, counted as long as it lives by the meter under which it was made.
class Charge {
 public:
  explicit Charge(size_t bytes = 0);
  ~Charge();
  Charge(Charge&& other) noexcept;
  Charge& operator=(Charge&&) = delete;
  void set(size_t bytes);  // of what has grown or shrunk; throws before it grows too large

 private:
  std::shared_ptr<Meter> meter_;
  size_t bytes_ = 0;
};

}  // namespace ort
