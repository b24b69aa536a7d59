// Heads of queues that may run are found anew for each piece of work.
#include "tests/far/queue.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/core/error.h"
#include "providers/provider.h"

namespace far {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

struct Event final : ort::Event {
  explicit Event(Schedule& schedule) : schedule(schedule) {}
  void synchronize() override {
    const Lock lock(schedule.mutex());
    ++schedule.waits;
    if (!*done && schedule.mistakes.leave_out(Mistakes::wait, schedule.mistakes.waits++)) return;
    schedule.run_until(*done);
  }
  Schedule& schedule;
  std::shared_ptr<bool> done = std::make_shared<bool>(false);
};

}  // namespace

void Stream::queue(Work work) {
  const Lock lock(schedule_.mutex());
  if (recording_) return recording_->add(std::move(work));
  schedule_.late_kernels += work.is_kernel;
  items_.push_back({std::move(work), nullptr});
  schedule_.queued();
}

bool Stream::begin_recording() {
  const Lock lock(schedule_.mutex());
  if (recording_) return false;
  recording_ = std::make_unique<Recording>();
  return true;
}

std::unique_ptr<Recording> Stream::end_recording() {
  const Lock lock(schedule_.mutex());
  return std::move(recording_);
}

void Recording::replay(ort::Stream& stream) {
  ++Schedule::instance().replays;
  for (const Work& work : work_) static_cast<Stream&>(stream).queue(work);
}

std::unique_ptr<ort::Event> Stream::record() {
  const Lock lock(schedule_.mutex());
  ort::check(!recording_, "far: an event in a recording");
  auto event = std::make_unique<Event>(schedule_);
  if (items_.empty())
    *event->done = true;
  else
    items_.push_back({{[done = event->done] { *done = true; }}, nullptr});
  return event;
}

void Stream::wait(ort::Event& event) {
  const Lock lock(schedule_.mutex());
  ort::check(!recording_, "far: a wait in a recording");
  auto* awaited = dynamic_cast<Event*>(&event);
  if (!awaited) return event.synchronize();  // of another device
  if (*awaited->done || schedule_.mistakes.leave_out(Mistakes::wait, schedule_.mistakes.waits++))
    return;
  items_.push_back({{}, awaited->done});
}

void Stream::synchronize() {
  const Lock lock(schedule_.mutex());
  ++schedule_.waits;
  const auto event = record();
  schedule_.run_until(*static_cast<Event&>(*event).done);
}

Schedule& Schedule::instance() {
  static auto* schedule = new Schedule();
  return *schedule;
}

Schedule::Schedule() : order_(ort::kStreams + kCallers) {
  for (size_t s = 0; s < order_.size(); ++s) streams_.push_back(std::make_unique<Stream>(*this));
  std::iota(order_.begin(), order_.end(), 0);
}

Stream& Schedule::make() {
  const Lock lock(mutex_);
  order_.push_back(streams_.size());
  return *streams_.emplace_back(std::make_unique<Stream>(*this));
}

bool Schedule::is_done(ort::Event& event) {
  const Lock lock(mutex_);
  return *static_cast<Event&>(event).done;
}

void Schedule::start(uint64_t seed) {
  const Lock lock(mutex_);
  run_all();
  random_.seed(seed);
  std::iota(order_.begin(), order_.end(), 0);
  if (seed > 0) std::shuffle(order_.begin(), order_.end(), random_);
  eager_ = seed >= 6;
}

bool Schedule::run_one() {
  if (eager_) std::shuffle(order_.begin(), order_.end(), random_);
  for (const size_t s : order_) {
    std::deque<Stream::Item>& items = streams_[s]->items_;
    while (!items.empty() && items.front().waits && *items.front().waits) items.pop_front();
    if (items.empty() || items.front().waits) continue;
    const Work work = std::move(items.front().work);
    items.pop_front();
    late_kernels -= work.is_kernel;
    try {
      work.run();
    } catch (const std::exception& failure) {
      if (error.empty()) error = failure.what();
    }
    return true;
  }
  return false;
}

void Schedule::run_until(const bool& done) {
  while (!done) ort::check(run_one(), "far: its streams wait for each other");
  if (!error.empty()) ort::fail("far: {}", std::exchange(error, {}));
}

void Schedule::run_all() {
  const Lock lock(mutex_);
  while (run_one()) {
  }
}

void Schedule::queued() {
  if (!eager_) return;
  for (uint64_t k = random_() % 3; k > 0; --k) run_one();
}

}  // namespace far
