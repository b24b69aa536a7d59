// For each step the set of all steps that have run when it begins; then every two that meet.
#include "csrc/plan/verify_waits.h"

#include <algorithm>
#include <array>
#include <map>

namespace ort {
namespace {

using Steps = std::vector<bool>;  // by number: whether it is one of them

void add(Steps& steps, const Steps& others) {
  for (size_t i = 0; i < steps.size(); ++i)
    if (others[i]) steps[i] = true;
}

// Runs the plan without its kernels, as the executor does.
class Order {
 public:
  explicit Order(const Plan& plan)
      : plan_(plan), host_(plan.steps.size()), streams_(plan.devices.size()) {
    for (auto& device : streams_) device.fill(Steps(plan.steps.size()));
  }

  // By step: those that have run when it begins, and when the host queues it.
  struct Before {
    std::vector<Steps> begun, queued;
  };
  Before run(std::span<const size_t> ends) && {
    size_t first = 0;
    for (const size_t end : ends) {
      begin(first, end);
      for (size_t i = first; i < end; ++i) visit(i, first);
      this->end(first, end);
      first = end;
    }
    return std::move(before_);
  }

 private:
  Steps& stream(const Step& step) {
    return streams_[static_cast<size_t>(step.device)][static_cast<size_t>(step.stream)];
  }
  bool uses(size_t first, size_t end, size_t device, int stream) const {
    return std::any_of(plan_.steps.begin() + static_cast<std::ptrdiff_t>(first),
                       plan_.steps.begin() + static_cast<std::ptrdiff_t>(end), [&](const Step& s) {
                         return s.device == static_cast<int>(device) && s.stream == stream;
                       });
  }
  // Calls f(first stream, other) for the other streams that these steps are on.
  template <class F>
  void each_other(size_t first, size_t end, F&& f) {
    for (size_t d = 1; d < streams_.size(); ++d)
      for (int other = kCompute + 1; other < kStreams; ++other)
        if (uses(first, end, d, other))
          f(streams_[d][kCompute], streams_[d][static_cast<size_t>(other)]);
  }

  void begin(size_t first, size_t end) {
    each_other(first, end, [](const Steps& compute, Steps& other) { add(other, compute); });
  }

  void visit(size_t i, size_t first) {
    const Step& step = plan_.steps[i];
    Steps before = step.device == 0 ? host_ : stream(step);
    for (const int wait : step.waits) {
      const auto earlier = static_cast<size_t>(wait);
      if (earlier < first) continue;
      Steps& waiting = step.reads_host ? host_ : before;
      add(waiting, before_.begun[earlier]);
      waiting[earlier] = true;
    }
    add(before, host_);
    before_.begun.push_back(before);
    before_.queued.push_back(host_);
    before[i] = true;
    (step.device == 0 ? host_ : stream(step)) = std::move(before);
  }

  void end(size_t first, size_t end) {
    each_other(first, end, [](Steps& compute, const Steps& other) { add(compute, other); });
    each_other(first, end, [&](const Steps& compute, const Steps&) { add(host_, compute); });
  }

  const Plan& plan_;
  Before before_;
  Steps host_;  // what the host knows to have run
  std::vector<std::array<Steps, kStreams>> streams_;
};

struct Touch {
  size_t step, begin, end;
  bool writes;
  bool queued;  // the host reads there when the step is queued
};

using Space = std::pair<int, size_t>;  // an arena of a device, or memory of another kind

// By space, in the order of where they begin.
class AllTouches {
 public:
  AllTouches(const Plan& plan, const Placement& placement, size_t from)
      : plan_(plan), placement_(placement) {
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      for (int k = 0; k < step.n_in + step.n_out; ++k) add(s, step.in + k, k >= step.n_in);
      const size_t bytes = step.kernel->scratch_bytes(), at = placement.scratch[s];
      const bool second = &placement != &plan.placement && step.segment >= 0;
      if (bytes > 0 && s >= from)
        by_space_[{-1 - step.device, second}].push_back({s, at, at + bytes, true, false});
    }
    for (auto& [space, touches] : by_space_)
      std::sort(touches.begin(), touches.end(),
                [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
  }

  // Calls f(a, b) for each two that meet.
  template <class F>
  void each_two(F&& f) const {
    for (const auto& [space, touches] : by_space_)
      for (size_t a = 0; a < touches.size(); ++a)
        for (size_t b = a + 1; b < touches.size() && touches[b].begin < touches[a].end; ++b)
          f(touches[a], touches[b]);
  }

 private:
  void add(size_t step, int operand, bool writes) {
    const int index = plan_.operands[static_cast<size_t>(operand)];
    if (index < 0) return;
    const Slot& slot = placement_.slots[static_cast<size_t>(index)];
    const bool second = slot.kind == Slot::Kind::second;
    const bool queued = plan_.steps[step].reads_host && slot.device == 0 && !writes;
    if (slot.kind == Slot::Kind::arena || second)
      by_space_[{-1 - slot.device, second}].push_back(
          {step, slot.at, slot.at + plan_.slot_bytes[static_cast<size_t>(index)], writes, queued});
    else
      by_space_[{static_cast<int>(slot.kind), slot.at}].push_back({step, 0, 1, writes, queued});
  }

  const Plan& plan_;
  const Placement& placement_;
  std::map<Space, std::vector<Touch>> by_space_;
};

}  // namespace

void verify_waits(const Plan& plan, const Placement& placement, std::span<const size_t> ends,
                  size_t from) {
  if (plan.devices.size() == 1) return;
  const auto before = Order(plan).run(ends);
  AllTouches(plan, placement, from).each_two([&](const Touch& a, const Touch& b) {
    const auto [first, second] = std::minmax(a.step, b.step);
    const Touch &early = first == a.step ? a : b, &late = first == a.step ? b : a;
    const Steps& run = (late.queued ? before.queued : before.begun)[second];
    if (first == second || !(a.writes || b.writes) || early.queued || run[first]) return;
    const Step &one = plan.steps[first], &other = plan.steps[second];
    fail("step {} ({}) need not have run when step {} ({}) begins, which {} the same memory of {}",
         first, one.name, second, other.name, late.writes ? "writes to" : "reads",
         plan.devices[static_cast<size_t>(other.device)].device);
  });
}

}  // namespace ort
