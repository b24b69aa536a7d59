// Where outputs are written, and one run over the plan's steps.
#include "csrc/program/bound_plan.h"

#include "csrc/runtime/executor.h"

namespace ort {

BoundPlan::BoundPlan(std::shared_ptr<const TrainingPlan> plan, std::span<const Tensor> into)
    : plan_(std::move(plan)), frame_(*plan_->core), made_(this->plan().outputs.types.size()) {
  for (size_t i = 0; i < made_.size(); ++i) {
    if (this->plan().outputs.types[i].layout.is_opaque()) continue;
    made_[i] = memory_for(i, into);
    frame_.set_output(i, made_[i].data);
  }
}

Tensor BoundPlan::memory_for(size_t output, std::span<const Tensor> into) const {
  const Operand& type = plan().outputs.types[output];
  if (output >= into.size() || !is_given(into[output]))
    return Tensor::unwritten(type.dtype, type.sizes);
  const Tensor& given = into[output];
  check(given.dtype == type.dtype && given.sizes == type.sizes,
        "output '{}' is {} of shape {}, the memory given for it is {} of shape {}",
        plan().outputs.names[output], type.dtype, type.sizes, given.dtype, given.sizes);
  return given;
}

void BoundPlan::set_input(size_t i, const Item& input) {
  if (input.is_tensor())
    frame_.set_input(i, input.tensor().data);
  else
    frame_.set_object(i, std::get<Opaque>(input));
}

void BoundPlan::run(RunState& state, Profile* profile) {
  frame_.set_run_state(&state);
  ort::run(plan(), frame_, 0, SIZE_MAX, profile);
}

std::vector<Item> BoundPlan::take_outputs() && {
  std::vector<Item> items;
  for (size_t i = 0; i < made_.size(); ++i)
    if (plan().outputs.types[i].layout.is_opaque())
      items.emplace_back(frame_.object(i));
    else if (made_[i].dtype == DType::string)
      items.emplace_back(own_strings(made_[i]));
    else
      items.emplace_back(std::move(made_[i]));
  return items;
}

}  // namespace ort
