// Which rows of steps a device records and replays, and what happens where it cannot.
#include "csrc/plan/recordings.h"

#include <gtest/gtest.h>

#include <memory>

#include "csrc/core/error.h"

namespace ort {
namespace {

struct Counts {
  int recorded = 0, replayed = 0;
};

class Replayed final : public Recording {
 public:
  explicit Replayed(Counts& counts) : counts_(counts) {}
  void replay(Stream&) override { ++counts_.replayed; }

 private:
  Counts& counts_;
};

class Recorder final : public DeviceRuntime {
 public:
  Memory& memory() override { fail("it has none"); }
  Stream& stream(int, std::optional<void*>) override { return host_stream(); }
  void synchronize() override {}
  std::unique_ptr<Recording> record(const std::function<void(Stream&)>& work) override {
    ++counts.recorded;
    if (declines) return nullptr;
    check(!fails, "the driver records nothing here");
    work(host_stream());
    return std::make_unique<Replayed>(counts);
  }
  Counts counts;
  bool declines = false, fails = false;
};

struct Queued {
  Recordings recordings;
  Recorder runtime;
  int worked = 0;
  void queue(const void* address, uint64_t switches = 0, size_t first = 0) {
    recordings.queue({first, first + 4, switches, {address}}, runtime, host_stream(),
                     [&](Stream&) { ++worked; });
  }
};

const char kMemory[16] = {};

TEST(Recordings, ARowIsRecordedWhenItComesAgainAndReplayedFromThenOn) {
  Queued q;
  for (int i = 0; i < 4; ++i) q.queue(kMemory);
  EXPECT_EQ(q.worked, 2);  // at first, and for the recording
  EXPECT_EQ(q.runtime.counts.recorded, 1);
  EXPECT_EQ(q.runtime.counts.replayed, 3);
  EXPECT_EQ(q.recordings.replays(), 3);
}

TEST(Recordings, OtherAddressesStepsOrSwitchesAreOtherRows) {
  Queued q;
  for (int i = 0; i < 2; ++i) q.queue(kMemory);
  q.queue(kMemory + 1);
  q.queue(kMemory, 1);
  q.queue(kMemory, 0, 4);
  EXPECT_EQ(q.runtime.counts.recorded, 1);
  EXPECT_EQ(q.worked, 5);
}

TEST(Recordings, OfARowThoseThatWereUsedLastAreKept) {
  Queued q;
  for (int address = 0; address < 7; ++address)
    for (int i = 0; i < 2; ++i) q.queue(kMemory + address);
  EXPECT_EQ(q.runtime.counts.recorded, 7);
  for (int address = 1; address < 7; ++address) q.queue(kMemory + address);
  EXPECT_EQ(q.runtime.counts.recorded, 7);
  const int before = q.worked;
  q.queue(kMemory);
  EXPECT_EQ(q.worked, before + 1);  // the first of them is gone
}

TEST(Recordings, ADeviceThatRecordsNothingIsAskedOnce) {
  Queued q;
  q.runtime.declines = true;
  for (int i = 0; i < 5; ++i) q.queue(kMemory);
  EXPECT_EQ(q.runtime.counts.recorded, 1);
  EXPECT_EQ(q.worked, 5);
}

TEST(Recordings, ARecordingThatFailsIsToldAndFailsNoCall) {
  Queued q;
  q.runtime.fails = true;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) q.queue(kMemory);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ortmodule: steps are queued one by one, as their device does not record them: the "
            "driver records nothing here\n");
  EXPECT_EQ(q.runtime.counts.recorded, 1);
  EXPECT_EQ(q.worked, 5);
}

}  // namespace
}  // namespace ort
