// What the run loop takes for a step of its own: a plan whose kernels do nothing. compare.py runs
// it; prints nanoseconds a step, the best of many runs.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "csrc/runtime/executor.h"

namespace {

class Nothing : public ort::Kernel {
 public:
  void run(const ort::Args& args) const override { asm volatile("" : : "r"(args.in) : "memory"); }
  std::string name() const override { return "nothing"; }
};

// Each step reads the two values before it and makes one.
ort::Plan plan_of(int steps) {
  ort::Plan plan;
  plan.kernels.push_back(std::make_unique<Nothing>());
  plan.placement.slots.resize(static_cast<size_t>(steps) + 2);
  plan.placement.scratch.resize(static_cast<size_t>(steps));
  plan.devices.push_back({ort::Device{}, nullptr});
  plan.placement.bytes = {64};
  for (int i = 0; i < steps; ++i) {
    ort::Step step;
    step.kernel = plan.kernels[0].get();
    step.in = 3 * i;
    step.n_in = 2;
    step.out = 3 * i + 2;
    step.n_out = 1;
    plan.steps.push_back(step);
    for (const int slot : {i, i + 1, i + 2}) plan.operands.push_back(slot);
  }
  return plan;
}

}  // namespace

int main() {
  constexpr int kSteps = 1000, kRuns = 2000;
  const ort::Plan plan = plan_of(kSteps);
  ort::Frame frame(plan);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const double start = ort::now_us();
    ort::run(plan, frame);
    best = std::min(best, ort::now_us() - start);
  }
  std::printf("%.2f\n", best * 1e3 / kSteps);
}
