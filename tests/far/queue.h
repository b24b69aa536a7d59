// The streams of `far`: work is queued, and run when somebody waits for it, in an order drawn among
// those that the events allow.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "csrc/core/device.h"

namespace far {

constexpr int kCallers = 2;  // streams that are not the engine's own

class Schedule;

// Work that runs late; a kernel is counted until it has run.
struct Work {
  std::function<void()> run;
  bool is_kernel = false;
};

class Recording final : public ort::Recording {
 public:
  void add(Work work) { work_.push_back(std::move(work)); }
  void replay(ort::Stream& stream) override;

 private:
  std::vector<Work> work_;
};

class Stream final : public ort::Stream {
 public:
  explicit Stream(Schedule& schedule) : schedule_(schedule) {}
  void queue(std::function<void()> work) { queue(Work{std::move(work)}); }
  void queue(Work work);
  bool begin_recording();  // false: it records already
  std::unique_ptr<Recording> end_recording();
  std::unique_ptr<ort::Event> record() override;
  void wait(ort::Event& event) override;
  void synchronize() override;
  void* native() const override { return const_cast<Stream*>(this); }

 private:
  friend class Schedule;
  struct Item {
    Work work;                          // or
    std::shared_ptr<const bool> waits;  // until this is true
  };
  Schedule& schedule_;
  std::deque<Item> items_;
  std::unique_ptr<Recording> recording_;  // where what is queued is kept and does not run
};

// Which mistake is made on purpose, and what there was to choose from.
struct Mistakes {
  enum Kind {
    none,
    wait,
    copy,
    reorder,    // is left out
    unordered,  // a reorder copies the value as it lies
    taken       // a kernel reads an input as if it were row-major
  };
  Kind kind = none;
  int at = 0;
  // Met so far: waits for what had not run, copies; reorders, and inputs of kernels that are not
  // row-major.
  int waits = 0, copies = 0, reorders = 0, takes = 0;
  bool leave_out(Kind of, int index) const { return kind == of && at == index; }
};

class Schedule {
 public:
  static Schedule& instance();
  // Seeds below 6: as late as can be, in a fixed order of streams; others also run some work when
  // it is queued.
  void start(uint64_t seed);
  // The engine's own, by use; after them those of who calls it.
  Stream& stream(int index) { return *streams_[static_cast<size_t>(index)]; }
  Stream& make();  // one more
  bool is_done(ort::Event& event);
  void run_until(const bool& done);
  void run_all();
  void queued();  // maybe something runs now
  std::recursive_mutex& mutex() { return mutex_; }

  Mistakes mistakes;
  std::atomic<int> waits = 0;         // of the host
  std::atomic<int> late_kernels = 0;  // that were queued and have not run
  std::atomic<int> replays = 0;       // of recordings
  std::string error;                  // of work that failed; raised by who waits next

 private:
  Schedule();
  bool run_one();
  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::mt19937_64 random_;
  std::vector<size_t> order_;  // of streams, the one to be preferred first
  bool eager_ = false;
};

}  // namespace far
