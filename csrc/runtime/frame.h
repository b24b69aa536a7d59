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
  // A frame for a backward that leaves `base`'s stash as it is: shares its pointers, has its own
  // arena for what it makes, and holds `base`'s opaque values beside it: a kernel that takes one
  // out of its slot sees by the use count whether it is the last. `base` must outlive it.
  static std::unique_ptr<Frame> retained(const Plan& plan, const Frame& base);

  void set_input(size_t i, const void* data);
  void set_output(size_t i, void* data);
  void* const* pointers() const { return pointers_.data(); }
  uint8_t* arena() const { return arena_.data(); }
  const Placement& placement() const { return *placement_; }

 private:
  Frame(const Plan& plan, const Placement& placement, const Frame* base);

  const Plan* plan_;
  const Placement* placement_;
  Block arena_;
  std::vector<void*> pointers_;
  std::vector<std::shared_ptr<void>> opaque_;
};

}  // namespace ort
