// Two accesses of one memory, one of them a write, keep their order. Each queue has a clock: of
// every queue, the last step that it is known to come after; so a wait that follows from others is
// left out.
#include "csrc/plan/waits.h"

#include <algorithm>
#include <functional>
#include <map>

namespace ort {
namespace {

using Clock = std::vector<int>;  // by queue: a step, or -1

// Who last wrote a stretch of memory, and who has read it since, by queue.
struct Touched {
  int writer = -1;
  Clock readers;
};

// A space of addresses cut into stretches that were touched alike.
class Stretches {
 public:
  explicit Stretches(size_t queues) : queues_(queues) {}

  template <class F>
  void each(size_t begin, size_t end, F&& f) {
    cut(begin);
    cut(end);
    for (auto at = by_begin_.find(begin); at != by_begin_.end() && at->first < end; ++at)
      f(at->second);
  }

 private:
  void cut(size_t at) {
    auto next = by_begin_.upper_bound(at);
    if (next == by_begin_.begin()) {
      by_begin_.emplace(at, Touched{-1, Clock(queues_, -1)});
      return;
    }
    const auto before = std::prev(next);
    if (before->first != at) by_begin_.emplace(at, before->second);
  }

  size_t queues_;
  std::map<size_t, Touched> by_begin_;
};

struct Access {
  std::pair<int, size_t> space;  // an arena, or one slot of the caller's or the plan's
  size_t begin, end;
  bool writes;
  bool queued;  // the host reads there when the step is queued
};

class Waiting {
 public:
  Waiting(const Plan& plan, const Placement& placement)
      : plan_(plan),
        placement_(placement),
        queues_(1 + (plan.devices.size() - 1) * kStreams),
        known_(queues_, Clock(queues_, -1)) {}

  std::vector<std::vector<int>> run() && {
    std::vector<std::vector<int>> waits(plan_.steps.size());
    at_.resize(plan_.steps.size());
    for (size_t s = 0; s < plan_.steps.size(); ++s) waits[s] = visit(static_cast<int>(s));
    return waits;
  }

 private:
  size_t queue_of(const Step& step) const {
    return step.device == 0 ? 0
                            : 1 + static_cast<size_t>((step.device - 1) * kStreams + step.stream);
  }

  std::vector<int> visit(int index) {
    const Step& step = plan_.steps[static_cast<size_t>(index)];
    const size_t queue = queue_of(step);
    Clock& clock = known_[queue];
    const std::vector<Access> accesses = accesses_of(step, static_cast<size_t>(index));
    std::vector<int> waits;
    wait_for(accesses, true, 0, waits);
    merge(clock, known_[0]);
    wait_for(accesses, false, queue, waits);
    clock[queue] = index;
    at_[static_cast<size_t>(index)] = clock;
    for (const Access& access : accesses)
      if (!access.queued) touch(access, index, queue);
    return waits;
  }

  // What the queue has to come after, as it does not know of it: in memory that the host reads when
  // the step is queued, or in the rest.
  void wait_for(const std::vector<Access>& accesses, bool queued, size_t queue,
                std::vector<int>& waits) {
    Clock& clock = known_[queue];
    Clock needed(queues_, -1);
    for (const Access& access : accesses)
      if (access.queued == queued) collect(access, needed);
    std::sort(needed.begin(), needed.end(), std::greater<>());  // a late one may follow the others
    for (const int before : needed) {
      if (before < 0) break;
      const size_t q = queue_of(plan_.steps[static_cast<size_t>(before)]);
      if (q == 0 || q == queue || before <= clock[q]) continue;
      waits.push_back(before);
      merge(clock, at_[static_cast<size_t>(before)]);
    }
  }

  static void merge(Clock& clock, const Clock& other) {
    for (size_t q = 0; q < clock.size(); ++q) clock[q] = std::max(clock[q], other[q]);
  }

  Stretches& space(const Access& access) {
    return spaces_.try_emplace(access.space, queues_).first->second;
  }

  void collect(const Access& access, Clock& needed) {
    const auto need = [&](int step) {
      if (step < 0) return;
      int& last = needed[queue_of(plan_.steps[static_cast<size_t>(step)])];
      last = std::max(last, step);
    };
    space(access).each(access.begin, access.end, [&](const Touched& touched) {
      need(touched.writer);
      if (access.writes)
        for (const int reader : touched.readers) need(reader);
    });
  }

  void touch(const Access& access, int step, size_t queue) {
    space(access).each(access.begin, access.end, [&](Touched& touched) {
      if (access.writes) {
        touched.writer = step;
        touched.readers.assign(queues_, -1);
      } else {
        touched.readers[queue] = step;
      }
    });
  }

  std::vector<Access> accesses_of(const Step& step, size_t index) const {
    std::vector<Access> accesses;
    for (int k = 0; k < step.n_in + step.n_out; ++k) {
      const int slot = plan_.operands[static_cast<size_t>(step.in + k)];
      if (slot < 0) continue;
      accesses.push_back(access(slot, k >= step.n_in));
      const bool host = placement_.slots[static_cast<size_t>(slot)].device == 0;
      accesses.back().queued = step.reads_host && host && k < step.n_in;
    }
    const size_t scratch = step.kernel->scratch_bytes(), at = placement_.scratch[index];
    if (scratch > 0)
      accesses.push_back({{-1 - step.device, arena_of(index)}, at, at + scratch, true, false});
    return accesses;
  }

  // The main arena, or the second one, in which a backward has its scratch.
  size_t arena_of(size_t step) const {
    return &placement_ != &plan_.placement && plan_.steps[step].segment >= 0 ? 1 : 0;
  }

  Access access(int index, bool writes) const {
    const Slot& slot = placement_.slots[static_cast<size_t>(index)];
    const bool first = slot.kind == Slot::Kind::arena, second = slot.kind == Slot::Kind::second;
    if (!first && !second) return {{static_cast<int>(slot.kind), slot.at}, 0, 1, writes, false};
    const size_t bytes = std::max<size_t>(plan_.slot_bytes[static_cast<size_t>(index)], 1);
    return {{-1 - slot.device, second ? 1u : 0u}, slot.at, slot.at + bytes, writes, false};
  }

  const Plan& plan_;
  const Placement& placement_;
  const size_t queues_;
  std::vector<Clock> known_;  // by queue
  std::vector<Clock> at_;     // by step: the clock of its queue when it was queued
  std::map<std::pair<int, size_t>, Stretches> spaces_;
};

}  // namespace

std::vector<std::vector<int>> waits_of(const Plan& plan, const Placement& placement) {
  if (plan.devices.size() == 1) return std::vector<std::vector<int>>(plan.steps.size());
  return Waiting(plan, placement).run();
}

void order_streams(Plan& plan, const Placement& placement, size_t first) {
  const std::vector<std::vector<int>> waits = waits_of(plan, placement);
  for (size_t s = first; s < waits.size(); ++s)
    for (const int before : waits[s]) {
      std::vector<int>& known = plan.steps[s].waits;
      if (std::find(known.begin(), known.end(), before) == known.end()) known.push_back(before);
      plan.steps[static_cast<size_t>(before)].signals = true;
    }
}

}  // namespace ort
