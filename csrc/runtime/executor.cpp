// One loop, no decisions: gather a step's pointers, call its kernel.
#include "csrc/runtime/executor.h"

#include <algorithm>

namespace ort {
namespace {

constexpr size_t kFewOperands = 32;

void run_step(const Plan& plan, const Step& step, void* const* pointers, uint8_t* scratch) {
  void* few[kFewOperands];
  std::vector<void*> many;
  const size_t count = static_cast<size_t>(step.n_in + step.n_out);
  void** gathered = few;
  if (count > kFewOperands) [[unlikely]] {
    many.resize(count);
    gathered = many.data();
  }
  const int* slots = plan.operands.data() + step.in;
  for (size_t i = 0; i < count; ++i) gathered[i] = slots[i] < 0 ? nullptr : pointers[slots[i]];
  step.kernel->run({gathered, gathered + step.n_in, scratch});
}

}  // namespace

void run(const Plan& plan, Frame& frame, size_t first, size_t last, Profile* profile) {
  last = std::min(last, plan.steps.size());
  void* const* pointers = frame.pointers();
  uint8_t* arena = frame.arena();
  const size_t* scratch = frame.placement().scratch.data();
  if (!profile) {
    for (size_t i = first; i < last; ++i)
      run_step(plan, plan.steps[i], pointers, arena + scratch[i]);
    return;
  }
  for (size_t i = first; i < last; ++i) {
    const double start = now_us();
    run_step(plan, plan.steps[i], pointers, arena + scratch[i]);
    profile->events.push_back(
        {plan.steps[i].name, std::string(plan.steps[i].provider), start, now_us() - start});
  }
}

}  // namespace ort
