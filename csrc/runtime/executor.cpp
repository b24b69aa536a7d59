// One loop, no decisions: gather a step's pointers, call its kernel. Where there are streams, each
// step waits for its events; the others of a device start after its first and end in it. Steps in a
// row that a device can record are one piece of work.
#include "csrc/runtime/executor.h"

#include <algorithm>
#include <array>
#include <exception>

#include "csrc/core/env.h"
#include "csrc/core/log.h"
#include "csrc/core/run_state.h"

namespace ort {
namespace {

constexpr size_t kFewOperands = 32;
constexpr size_t kFewRecorded = 4;  // fewer steps are queued as quickly as a recording is
constexpr std::string_view kOfThisCall = "; this was found after the forward of this call";

void run_step(const Plan& plan, const Frame& frame, size_t index, Stream& stream) {
  const Step& step = plan.steps[index];
  void* const* pointers = frame.pointers();
  void* few[kFewOperands];
  std::vector<void*> many;
  const size_t count = static_cast<size_t>(step.n_in + step.n_out);
  void** gathered = few;
  if (count > kFewOperands) [[unlikely]] {
    many.resize(count);
    gathered = many.data();
  }
  const bool checks = plan.devices[static_cast<size_t>(step.device)].checks;
  const int* slots = plan.operands.data() + step.in;
  for (size_t i = 0; i < count; ++i) gathered[i] = slots[i] < 0 ? nullptr : pointers[slots[i]];
  uint8_t* scratch = frame.arena(step.device) + frame.placement().scratch[index];
  try {
    step.kernel->run({gathered, gathered + step.n_in, scratch, stream,
                      checks ? frame.failure(step.device) : nullptr,
                      static_cast<int32_t>(index) + 1, frame.run_state()});
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeferredError&) {  // of an earlier run, which a body looks back on too
    throw;
  } catch (const Error& error) {
    fail_at(error, step.node.text());
  }
}

void run_step(const Plan& plan, const Frame& frame, size_t index) {
  const Step& step = plan.steps[index];
  run_step(plan, frame, index, frame.stream(step.device, step.stream));
}

// The streams of one run of a range of steps.
class Queues {
 public:
  Queues(const Plan& plan, Frame& frame, size_t first, size_t last)
      : plan_(plan),
        frame_(frame),
        first_(first),
        events_(last - first),
        uses_(plan.devices.size()) {
    for (size_t i = first; i < last; ++i) {
      const Step& step = plan.steps[i];
      Use& use = uses_[static_cast<size_t>(step.device)];
      use.checks |= step.checks;
      use.streams[static_cast<size_t>(step.stream)] = true;
    }
  }

  // Throws what earlier runs found wrong: nothing of a call that failed goes on.
  void look_back() const {
    each_device([&](int device, Stream&) {
      auto& mark = frame_.mark(device);
      if (first_ == 0) mark = nullptr;  // of another call
      for (const auto& found : {frame_.earlier_mark(device), mark})
        if (found && found->read() != 0) raise_failure<DeferredError>(*found, kOfThisCall);
    });
    plan_.errors->raise();
  }

  // The other streams follow the first, which has the caller's work.
  void fork() const {
    each_device([&](int device, Stream& compute) {
      auto& mark = frame_.mark(device);
      if (use(device).checks && !mark) {
        mark = FailureMark::take(plan_.devices[static_cast<size_t>(device)]);
        mark->memory().zero(frame_.failure(device), sizeof(int32_t), compute);
      }
      each_other(device, [&](Stream& other) { other.wait(*compute.record()); });
    });
  }

  void before(const Step& step) const {
    for (const int earlier : step.waits) {
      if (earlier < static_cast<int>(first_)) continue;  // an earlier run, ended in first streams
      Event& event = *events_[static_cast<size_t>(earlier) - first_];
      if (step.device == 0 || step.reads_host)
        event.synchronize();
      else
        frame_.stream(step.device, step.stream).wait(event);
    }
  }

  void after(const Step& step, size_t index) {
    if (step.signals) events_[index - first_] = frame_.stream(step.device, step.stream).record();
  }

  // Of a run that failed: nothing may touch its memory any more, and the first error is the one to
  // be told.
  void drain() const noexcept {
    each_device([&](int device, Stream&) {
      for (int use = 0; use < kStreams; ++use) try {
          frame_.stream(device, use).synchronize();
        } catch (const std::exception& error) {
          log("{}: {}", plan_.devices[static_cast<size_t>(device)].device, error.what());
        }
    });
  }

  // The host's memory may be changed or given back when the run has ended, so what reads or writes
  // it late must have run. Else the host does not wait, for a check neither.
  void join() const {
    each_device([&](int device, Stream& compute) {
      each_other(device, [&](Stream& other) { compute.wait(*other.record()); });
    });
    each_device([&](int device, Stream& compute) {
      const auto& mark = frame_.mark(device);
      if (use(device).checks)
        mark->memory().copy(mark->place(), frame_.failure(device), sizeof(int32_t),
                            CopyKind::to_host, compute);
      if (use(device).meets_host()) compute.synchronize();
      if (!use(device).checks) return;
      if (!use(device).meets_host())
        plan_.errors->add(plan_, mark, compute.record());
      else if (mark->read() != 0)
        raise_failure<Error>(*mark, "");
    });
  }

 private:
  // Of a device by these steps.
  struct Use {
    bool checks = false;
    std::array<bool, kStreams> streams{};
    bool meets_host() const { return streams[kUpload] || streams[kDownload]; }
  };
  const Use& use(int device) const { return uses_[static_cast<size_t>(device)]; }

  template <class F>
  void each_device(F&& f) const {
    for (int device = 1; device < static_cast<int>(plan_.devices.size()); ++device)
      f(device, frame_.stream(device, kCompute));
  }

  // The streams beside the first that these steps are on.
  template <class F>
  void each_other(int device, F&& f) const {
    for (int other = kCompute + 1; other < kStreams; ++other)
      if (use(device).streams[static_cast<size_t>(other)]) f(frame_.stream(device, other));
  }

  template <class Kind>
  [[noreturn]] void raise_failure(FailureMark& mark, std::string_view when) const {
    mark.tell();
    throw Kind(format("{}{}", failure_text(plan_, mark.read()), when));
  }

  const Plan& plan_;
  Frame& frame_;
  const size_t first_;
  std::vector<std::unique_ptr<Event>> events_;  // by step of the range
  std::vector<Use> uses_;                       // by device
};

// The end of the steps from `first` on that a device may record as one.
size_t end_of_stretch(const Plan& plan, size_t first, size_t last) {
  const int device = plan.steps[first].device;
  size_t end = first;
  while (end < last && plan.steps[end].recordable && plan.steps[end].device == device) ++end;
  return end;
}

Recordings::Stretch stretch_of(const Plan& plan, const Frame& frame, size_t first, size_t last) {
  const int device = plan.steps[first].device;
  const DeviceRuntime& runtime = *plan.devices[static_cast<size_t>(device)].runtime;
  Recordings::Stretch stretch{first, last, runtime.switches(), {}};
  stretch.addresses.push_back(frame.failure(device));
  for (size_t i = first; i < last; ++i) {
    const Step& step = plan.steps[i];
    for (int k = step.in; k < step.in + step.n_in + step.n_out; ++k)
      if (const int slot = plan.operands[static_cast<size_t>(k)]; slot >= 0)
        stretch.addresses.push_back(frame.pointers()[slot]);
    stretch.addresses.push_back(frame.arena(device) + frame.placement().scratch[i]);
  }
  return stretch;
}

void run_stretch(const Plan& plan, const Frame& frame, size_t first, size_t last) {
  const int device = plan.steps[first].device;
  plan.recordings->queue(stretch_of(plan, frame, first, last),
                         *plan.devices[static_cast<size_t>(device)].runtime,
                         frame.stream(device, kCompute), [&](Stream& stream) {
                           for (size_t i = first; i < last; ++i) run_step(plan, frame, i, stream);
                         });
}

void run_in_pieces(const Plan& plan, Frame& frame, Queues& queues, size_t first, size_t last) {
  for (size_t i = first, end = first; i < last; i = end) {
    if (frame.run_state()) frame.run_state()->go_on();
    end = end_of_stretch(plan, i, last);
    const bool recorded = end >= i + kFewRecorded;
    if (!recorded) end = i + 1;
    for (size_t k = i; k < end; ++k) queues.before(plan.steps[k]);
    recorded ? run_stretch(plan, frame, i, end) : run_step(plan, frame, i);
    for (size_t k = i; k < end; ++k) queues.after(plan.steps[k], k);
  }
}

bool is_timed(const Profile* profile) {
  static const bool print = env::debug() >= 2;
  return profile || print;
}

// Calls run(i) for each step until the run is terminated, timed where somebody asks.
template <class F>
void each_step(const Plan& plan, Frame& frame, size_t first, size_t last, Profile* profile,
               F&& run_one) {
  const auto run = [&, state = frame.run_state()](size_t i) {
    if (state) state->go_on();
    run_one(i);
  };
  if (!is_timed(profile)) {
    for (size_t i = first; i < last; ++i) run(i);
    return;
  }
  for (size_t i = first; i < last; ++i) {
    const Step& step = plan.steps[i];
    const double start = now_us();
    run(i);
    const double us = now_us() - start;
    if (env::debug() >= 2) log("step {} {} {}: {} us", i, step.provider, step.name, us);
    if (profile) profile->add({step.name, std::string(step.provider), start, us, i, &plan});
  }
}

}  // namespace

void run(const Plan& plan, Frame& frame, size_t first, size_t last, Profile* profile) {
  last = std::min(last, plan.steps.size());
  if (plan.devices.size() == 1)
    return each_step(plan, frame, first, last, profile,
                     [&](size_t i) { run_step(plan, frame, i); });
  Queues queues(plan, frame, first, last);
  queues.look_back();
  try {
    queues.fork();
    if (is_timed(profile))
      each_step(plan, frame, first, last, profile, [&](size_t i) {
        queues.before(plan.steps[i]);
        run_step(plan, frame, i);
        queues.after(plan.steps[i], i);
      });
    else
      run_in_pieces(plan, frame, queues, first, last);
    queues.join();
  } catch (...) {
    queues.drain();
    throw;
  }
}

}  // namespace ort
