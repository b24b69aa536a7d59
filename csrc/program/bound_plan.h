// A plan's frame whose inputs and outputs are in place: it is run once, or again and again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "csrc/core/item.h"
#include "csrc/plan/training_plan.h"
#include "csrc/runtime/frame.h"
#include "csrc/runtime/profile.h"

namespace ort {

// Memory of no bytes may have no address.
inline bool is_given(const Tensor& memory) {
  return memory.dtype != DType::undefined;
}

class BoundPlan {
 public:
  // `into`: by output, memory that is written; where none is given, and beyond its end, an output
  // is in new memory.
  explicit BoundPlan(std::shared_ptr<const TrainingPlan> plan, std::span<const Tensor> into = {});
  void set_input(size_t i, const Item& input);
  // Reads the inputs and writes the outputs where they lie. One run at a time.
  void run(RunState& state, Profile* profile = nullptr);
  // Of the latest run. Strings are copied, as they point into what was fed.
  std::vector<Item> take_outputs() &&;
  // By output: what is written at each run; without data where it is an object.
  const std::vector<Tensor>& memory() const { return made_; }

 private:
  const Plan& plan() const { return *plan_->core; }
  Tensor memory_for(size_t output, std::span<const Tensor> into) const;

  std::shared_ptr<const TrainingPlan> plan_;
  Frame frame_;
  std::vector<Tensor> made_;
};

}  // namespace ort
