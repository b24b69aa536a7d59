// What one run of a program may cost and whether it is to end: shared by its stages and bodies.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "csrc/core/error.h"
#include "csrc/core/meter.h"

namespace ort {

// What a run may cost: one that would cost more is refused before it starts.
struct SessionLimits {
  std::optional<size_t> bytes;       // of inputs, outputs and what lies between: live at once
  std::optional<double> operations;  // as estimated from sizes
};

class RunState {
 public:
  // Without limits; nobody ends the run.
  RunState() : RunState({}, kNever) {}
  // `terminations`: the run ends when it is counted up. `ended`: or when this is set, if there is
  // one.
  RunState(SessionLimits limits, const std::atomic<uint64_t>& terminations,
           const std::atomic<bool>* ended = nullptr)
      : limits_(limits),
        meter_(limits.bytes ? std::make_shared<Meter>(*limits.bytes) : nullptr),
        terminations_(terminations),
        then_(terminations.load()),
        ended_(ended) {}

  const SessionLimits& limits() const { return limits_; }
  // Counts what is live in the run; null where bytes have no limit.
  const std::shared_ptr<Meter>& meter() const { return meter_; }
  // Throws where the run was terminated.
  void go_on() const {
    const bool ended = ended_ && ended_->load(std::memory_order_relaxed);
    check(!ended && terminations_.load(std::memory_order_relaxed) == then_,
          "the run was terminated");
  }
  // Throws where the part that is about to run needs more, beside what is live, than the limits
  // leave, or the run was terminated.
  void begin(size_t bytes, double operations) {
    go_on();
    if (meter_) meter_->require(bytes);
    operations_ += operations;
    check(!limits_.operations || operations_ <= *limits_.operations,
          "the run needs about {} operations, the session's limit is {}", operations_,
          limits_.operations.value_or(0));
  }
  // Counts what is kept for a backward, and gives the sum.
  size_t keep(size_t bytes) { return kept_ += bytes; }
  size_t kept() const { return kept_; }
  // What steps gave that run once a call, however often its forward runs: by their numbers.
  using Once = std::map<int64_t, std::shared_ptr<void>>;
  void remember(Once* once) { once_ = once; }
  // Null where nothing is remembered; what it points to is null before the step has run.
  std::shared_ptr<void>* once(int64_t number) { return once_ ? &(*once_)[number] : nullptr; }

  // The gradients that steps did not give in a backward: by the step's number and its input.
  using Missing = std::set<std::pair<int64_t, int64_t>>;
  void note_in(Missing* missing) { missing_ = missing; }
  Missing* missing() const { return missing_; }  // null where nobody asks

 private:
  inline static const std::atomic<uint64_t> kNever = 0;

  SessionLimits limits_;
  std::shared_ptr<Meter> meter_;
  const std::atomic<uint64_t>& terminations_;
  uint64_t then_;
  const std::atomic<bool>* ended_ = nullptr;
  double operations_ = 0;
  size_t kept_ = 0;
  Once* once_ = nullptr;
  Missing* missing_ = nullptr;
};

}  // namespace ort
