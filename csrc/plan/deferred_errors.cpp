// A run stays on the list until its device has passed its end: only then is its mark used again.
#include "csrc/plan/deferred_errors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/core/log.h"
#include "csrc/plan/plan.h"

namespace ort {
namespace {

constexpr size_t kMarkBytes = 64, kMarksAtOnce = 64;  // a cache line each

struct Marks {
  Mutex mutex;
  std::map<Memory*, std::vector<int32_t*>> idle;
};

Marks& marks() {
  static auto* marks = new Marks();  // outlives all that queue
  return *marks;
}

}  // namespace

std::shared_ptr<FailureMark> FailureMark::take(const PlanDevice& device) {
  Memory& memory = device.runtime->memory();
  const std::lock_guard lock(marks().mutex);
  std::vector<int32_t*>& idle = marks().idle[&memory];
  if (idle.empty()) {
    auto* block = static_cast<uint8_t*>(memory.allocate_mapped(kMarkBytes * kMarksAtOnce));
    check(block, "kernels on {} may find something wrong and cannot tell the host", device.device);
    for (size_t i = 0; i < kMarksAtOnce; ++i)
      idle.push_back(reinterpret_cast<int32_t*>(block + i * kMarkBytes));
  }
  int32_t* place = idle.back();
  idle.pop_back();
  std::atomic_ref(*place).store(0);
  return std::make_shared<FailureMark>(memory, place);
}

FailureMark::~FailureMark() {
  const std::lock_guard lock(marks().mutex);
  marks().idle[&memory_].push_back(place_);
}

DeferredErrors::~DeferredErrors() {
  for (const std::string& text : found_) log("{}", text);
}

void DeferredErrors::add(const Plan& plan, std::shared_ptr<FailureMark> mark,
                         std::shared_ptr<Event> end) {
  const std::lock_guard lock(mutex_);
  runs_.push_back({&plan, std::move(mark), std::move(end)});
}

// Called with the mutex held. A mark that is set is enough; the rest of its run may take its time.
void DeferredErrors::note(const Run& run) {
  const int32_t mark = run.mark->read();
  if (mark != 0 && run.mark->tell())
    found_.push_back(format("{}; this was found in an earlier call, whose results are wrong",
                            failure_text(*run.plan, mark)));
}

void DeferredErrors::raise() {
  const std::lock_guard lock(mutex_);
  std::vector<Run> going_on;
  for (const Run& run : runs_) {
    if (!run.mark->memory().is_done(*run.end)) going_on.push_back(run);  // before the mark is read
    note(run);
  }
  runs_ = std::move(going_on);
  if (found_.empty()) return;
  const std::string text = found_.front();
  found_.erase(found_.begin());
  throw DeferredError(text);
}

void DeferredErrors::finish_and_raise() {
  std::vector<std::shared_ptr<Event>> ends;
  {
    const std::lock_guard lock(mutex_);
    for (const Run& run : runs_) ends.push_back(run.end);
  }
  for (const auto& end : ends) end->synchronize();
  raise();
}

void DeferredErrors::leave(const Plan& plan) {
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [&](const Run& run) {
    if (run.plan == &plan) note(run);
    return run.plan == &plan;
  });
}

std::string failure_text(const Plan& plan, int32_t mark) {
  const Step& step = plan.steps.at(static_cast<size_t>(mark) - 1);
  return format("{}; {}", step.kernel->failure(), step.node.text());
}

}  // namespace ort
