// One loop, no decisions: gather a step's pointers, call its kernel.
#include "csrc/runtime/executor.h"

#include <algorithm>

#include "csrc/core/env.h"
#include "csrc/core/log.h"

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
  try {
    step.kernel->run({gathered, gathered + step.n_in, scratch});
  } catch (const Error& error) {
    fail_at(error, step.node.text());
  }
}

}  // namespace

void run(const Plan& plan, Frame& frame, size_t first, size_t last, Profile* profile) {
  last = std::min(last, plan.steps.size());
  void* const* pointers = frame.pointers();
  uint8_t* arena = frame.arena();
  const size_t* scratch = frame.placement().scratch.data();
  static const bool print = env::debug() >= 2;
  if (!profile && !print) {
    for (size_t i = first; i < last; ++i)
      run_step(plan, plan.steps[i], pointers, arena + scratch[i]);
    return;
  }
  for (size_t i = first; i < last; ++i) {
    const Step& step = plan.steps[i];
    const double start = now_us();
    run_step(plan, step, pointers, arena + scratch[i]);
    const double us = now_us() - start;
    if (print) log("step {} {} {}: {} us", i, step.provider, step.name, us);
    if (profile) profile->add({step.name, std::string(step.provider), start, us, i});
  }
}

}  // namespace ort
