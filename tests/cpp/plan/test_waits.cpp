// Waits between queues: cases whose answer is known, and a property over random plans: every two
// accesses of one memory, one of them a write, keep their order by queues and waits alone.
#include "csrc/plan/waits.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "csrc/plan/verify_waits.h"

namespace ort {
namespace {

class Nothing final : public Kernel {
 public:
  void run(const Args&) const override {}
  std::string name() const override { return "nothing"; }
};

// Slots are 64 bytes of the first device's or the host's arena.
struct Planned {
  Plan plan;
  static inline const Nothing kernel;
  explicit Planned(size_t devices) {
    for (size_t d = 0; d < devices; ++d)
      plan.devices.push_back(
          {{d ? DeviceKind::private_use : DeviceKind::cpu, static_cast<int>(d)}, nullptr});
  }
  int slot(int device, size_t at) {
    plan.placement.slots.push_back({Slot::Kind::arena, at, device});
    plan.slot_bytes.push_back(64);
    return static_cast<int>(plan.placement.slots.size()) - 1;
  }
  void step(int device, int stream, std::vector<int> in, std::vector<int> out) {
    Step step;
    step.kernel = &kernel;
    step.device = device;
    step.stream = stream;
    step.in = static_cast<int>(plan.operands.size());
    step.n_in = static_cast<int>(in.size());
    step.n_out = static_cast<int>(out.size());
    step.out = step.in + step.n_in;
    plan.operands.insert(plan.operands.end(), in.begin(), in.end());
    plan.operands.insert(plan.operands.end(), out.begin(), out.end());
    plan.steps.push_back(step);
    plan.placement.scratch.push_back(0);
  }
  std::vector<std::vector<int>> waits() const { return waits_of(plan, plan.placement); }
};

// 30 steps that read and write 12 slots of three devices, the host among them.
Planned drawn(std::mt19937& random) {
  Planned p(3);
  for (int s = 0; s < 12; ++s) p.slot(s % 3, random() % 4 * 32);
  for (int s = 0; s < 30; ++s) {
    const auto device = static_cast<int>(random() % 3);
    p.step(device, device ? static_cast<int>(random() % kStreams) : kCompute,
           {static_cast<int>(random() % 12)}, {static_cast<int>(random() % 12)});
  }
  return p;
}

TEST(Waits, AReaderOnAnotherStreamWaitsForTheWriter) {
  Planned p(2);
  const int a = p.slot(1, 0), b = p.slot(1, 64);
  p.step(1, kUpload, {}, {a});
  p.step(1, kCompute, {a}, {b});
  p.step(1, kCompute, {a}, {b});
  EXPECT_EQ(p.waits(), (std::vector<std::vector<int>>{{}, {0}, {}}));
}

TEST(Waits, MemoryThatIsUsedAgainWaitsForItsReaders) {
  Planned p(2);
  const int a = p.slot(1, 0), b = p.slot(1, 64), again = p.slot(1, 32);
  p.step(1, kCompute, {}, {a});
  p.step(1, kCompute, {a}, {b});
  p.step(1, kUpload, {}, {again});
  EXPECT_EQ(p.waits()[2], (std::vector<int>{1}));
}

TEST(Waits, TheHostWaitsAndIsNeverWaitedFor) {
  Planned p(2);
  const int host = p.slot(0, 0), far = p.slot(1, 0), back = p.slot(0, 64);
  p.step(0, kCompute, {}, {host});
  p.step(1, kUpload, {host}, {far});
  p.step(1, kDownload, {far}, {back});
  p.step(0, kCompute, {back}, {host});
  EXPECT_EQ(p.waits(), (std::vector<std::vector<int>>{{}, {}, {1}, {2}}));
}

// What was downloaded is read when the step is queued: the stream's waiting is not enough, nor that
// it has waited before. What it read may then be written at once.
TEST(Waits, TheHostWaitsForWhatItReadsForADevice) {
  Planned p(2);
  const int far = p.slot(1, 0), host = p.slot(0, 0), other = p.slot(1, 64), last = p.slot(1, 128);
  p.step(1, kDownload, {far}, {host});
  p.step(1, kCompute, {other}, {far});  // the stream waits for the download
  p.step(1, kCompute, {host}, {last});
  p.step(0, kCompute, {}, {host});
  EXPECT_EQ(p.waits(), (std::vector<std::vector<int>>{{}, {0}, {}, {2}}));
  p.plan.steps[2].reads_host = true;
  EXPECT_EQ(p.waits(), (std::vector<std::vector<int>>{{}, {0}, {0}, {}}));
}

TEST(Waits, OneQueueNeedsNone) {
  Planned p(1);
  const int a = p.slot(0, 0);
  p.step(0, kCompute, {}, {a});
  p.step(0, kCompute, {a}, {a});
  EXPECT_EQ(p.waits(), (std::vector<std::vector<int>>{{}, {}}));
}

// Whether step i has run whenever j runs, for all i < j: by its queue, the host's progress, waits.
std::vector<std::vector<bool>> orders(const Planned& p,
                                      const std::vector<std::vector<int>>& waits) {
  const size_t n = p.plan.steps.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  std::vector<bool> host(n, false);  // what has run when the host is at this step
  for (size_t j = 0; j < n; ++j) {
    const auto follow = [&](size_t i) {
      before[j][i] = true;
      for (size_t k = 0; k < i; ++k) before[j][k] = before[j][k] || before[i][k];
    };
    for (size_t i = 0; i < j; ++i)
      if (host[i] || (p.plan.steps[i].device == p.plan.steps[j].device &&
                      p.plan.steps[i].stream == p.plan.steps[j].stream))
        follow(i);
    for (const int i : waits[j]) follow(static_cast<size_t>(i));
    if (p.plan.steps[j].device != 0) continue;
    host[j] = true;
    for (size_t i = 0; i < j; ++i) host[i] = host[i] || before[j][i];
  }
  return before;
}

bool conflict(const Planned& p, const Step& a, const Step& b) {
  for (int i = 0; i < a.n_in + a.n_out; ++i)
    for (int j = 0; j < b.n_in + b.n_out; ++j) {
      const int first = p.plan.operands[static_cast<size_t>(a.in + i)];
      const int second = p.plan.operands[static_cast<size_t>(b.in + j)];
      const Slot& x = p.plan.placement.slots[static_cast<size_t>(first)];
      const Slot& y = p.plan.placement.slots[static_cast<size_t>(second)];
      const bool overlap = x.device == y.device && x.at < y.at + 64 && y.at < x.at + 64;
      if (overlap && (i >= a.n_in || j >= b.n_in)) return true;
    }
  return false;
}

TEST(Waits, EveryConflictIsOrderedAndNoWaitIsIdle) {
  std::mt19937 random(3);
  size_t ordered = 0;
  for (int round = 0; round < 300; ++round) {
    const Planned p = drawn(random);
    const auto waits = p.waits();
    const auto before = orders(p, waits);
    for (size_t j = 0; j < p.plan.steps.size(); ++j) {
      for (size_t i = 0; i < j; ++i)
        if (conflict(p, p.plan.steps[i], p.plan.steps[j])) {
          ASSERT_TRUE(before[j][i]) << "round " << round << ": " << i << " before " << j;
          ++ordered;
        }
      for (size_t k = 0; k < waits[j].size(); ++k) {
        auto fewer = waits;
        fewer[j].erase(fewer[j].begin() + static_cast<long>(k));
        EXPECT_FALSE(orders(p, fewer)[j][static_cast<size_t>(waits[j][k])]);
      }
    }
  }
  EXPECT_GT(ordered, 1000u);
}

std::string refusal(const Plan& plan, std::vector<size_t> ends = {}) {
  if (ends.empty()) ends = {plan.steps.size()};
  try {
    verify_waits(plan, plan.placement, ends);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(VerifyWaits, TwoWritersOnTwoStreamsNeedAnEvent) {
  Planned p(2);
  const int a = p.slot(1, 0), b = p.slot(1, 32);
  p.step(1, kUpload, {}, {a});
  p.step(1, kCompute, {}, {b});
  p.plan.steps[0].name = "copy", p.plan.steps[1].name = "Add";
  EXPECT_EQ(refusal(p.plan),
            "step 0 (copy) need not have run when step 1 (Add) begins, which writes to the same "
            "memory of private_use:1");
  order_streams(p.plan, p.plan.placement);
  EXPECT_EQ(refusal(p.plan), "");
}

TEST(VerifyWaits, AnEarlierRangeOfADeviceHasRunAndTheHostKnowsOfItWhereItWaited) {
  Planned p(2);
  const int a = p.slot(1, 0), host = p.slot(0, 0), other = p.slot(1, 64);
  p.step(1, kCompute, {}, {a});
  p.step(1, kUpload, {}, {a});
  EXPECT_NE(refusal(p.plan), "");
  EXPECT_EQ(refusal(p.plan, {1, 2}), "");
  p.step(1, kDownload, {other}, {host});
  p.step(0, kCompute, {host}, {});
  EXPECT_NE(refusal(p.plan, {1, 2, 4}), "");
  EXPECT_EQ(refusal(p.plan, {1, 2, 3, 4}), "");
}

TEST(VerifyWaits, WhatTheHostReadsForADeviceIsThere) {
  Planned p(2);
  const int host = p.slot(0, 0), other = p.slot(1, 64);
  p.step(1, kDownload, {other}, {host});
  p.step(1, kCompute, {host}, {p.slot(1, 128)});
  p.step(0, kCompute, {}, {host});
  p.plan.steps[1].waits = {0};
  EXPECT_NE(refusal(p.plan), "");  // the step before the host's may not have run
  p.plan.steps[1].reads_host = true;
  EXPECT_EQ(refusal(p.plan), "");
  p.plan.steps[1].waits = {};
  EXPECT_NE(refusal(p.plan), "");
}

TEST(VerifyWaits, PlansWhoseHostReadsForADeviceKeepTheirOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    Planned p = drawn(random);
    for (Step& step : p.plan.steps) {
      const auto read = static_cast<size_t>(p.plan.operands[static_cast<size_t>(step.in)]);
      step.reads_host =
          step.device > 0 && step.stream == kCompute && p.plan.placement.slots[read].device == 0;
    }
    order_streams(p.plan, p.plan.placement);
    EXPECT_EQ(refusal(p.plan), "") << "round " << round;
  }
}

TEST(VerifyWaits, ScratchIsWrittenToo) {
  Planned p(2);
  class WithScratch final : public Kernel {
   public:
    void run(const Args&) const override {}
    std::string name() const override { return "scratch"; }
    size_t scratch_bytes() const override { return 64; }
  } kernel;
  p.step(1, kCompute, {}, {});
  p.step(1, kUpload, {}, {p.slot(1, 32)});
  EXPECT_EQ(refusal(p.plan), "");
  p.plan.steps[0].kernel = &kernel;
  EXPECT_NE(refusal(p.plan), "");
}

TEST(VerifyWaits, EachWaitOfAPlanIsMissed) {
  std::mt19937 random(4);
  size_t left_out = 0;
  for (int round = 0; round < 100; ++round) {
    Planned p = drawn(random);
    order_streams(p.plan, p.plan.placement);
    ASSERT_EQ(refusal(p.plan), "") << "round " << round;
    for (Step& step : p.plan.steps) {
      const std::vector<int> waits = step.waits;
      for (size_t k = 0; k < waits.size(); ++k) {
        step.waits.erase(step.waits.begin() + static_cast<long>(k));
        EXPECT_NE(refusal(p.plan), "") << "round " << round;
        step.waits = waits;
        ++left_out;
      }
    }
  }
  EXPECT_GT(left_out, 500u);
}

}  // namespace
}  // namespace ort
