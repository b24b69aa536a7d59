// A frame: the memory and pointers of one call. It belongs to that call until it is given back.
#pragma once

#include <memory>
#include <vector>

#include "csrc/core/pool.h"
#include "csrc/plan/plan.h"

namespace ort {

class Frame {
 public:
  explicit Frame(const Plan& plan);
  void set_input(size_t i, const void* data);
  void set_output(size_t i, void* data);
  void* pointer(int slot) const { return pointers_[static_cast<size_t>(slot)]; }
  void* const* pointers() const { return pointers_.data(); }
  uint8_t* arena() const { return arena_.data(); }

 private:
  Block arena_;
  std::vector<void*> pointers_;
  std::vector<std::shared_ptr<void>> opaque_;
  std::vector<std::vector<int>> input_slots_, output_slots_;
};

}  // namespace ort
