// What a device has recorded of a plan's steps. A recording is right for the addresses that it was
// made at, so it is found by all of them, and holds no memory: a training loop gets the same memory
// again and again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "csrc/core/device.h"
#include "csrc/core/mutex.h"

namespace ort {

class Recordings {
 public:
  // Steps in a row, and what each of them reads and writes.
  struct Stretch {
    size_t first = 0, last = 0;
    uint64_t switches = 0;  // of the device
    std::vector<const void*> addresses;
    friend bool operator==(const Stretch&, const Stretch&) = default;
  };
  using Work = std::function<void(Stream&)>;

  // Queues the stretch on the stream: replayed where it is recorded, else by `work`. It is recorded
  // when it comes at the same addresses for the second time.
  void queue(const Stretch& stretch, DeviceRuntime& runtime, Stream& stream, const Work& work);
  int replays() const { return replays_; }  // so far

 private:
  // Of one stretch: in two buffers of a loader's, for two forwards in flight, for what is retained.
  static constexpr size_t kMostOfAStretch = 6;
  struct Known {
    Stretch stretch;
    std::unique_ptr<Recording> recording;  // null: it came once
  };
  // Called with the mutex held. The first of the list is what came last.
  Known* find(const Stretch& stretch);
  void add(const Stretch& stretch);
  bool record(Known& known, DeviceRuntime& runtime, const Work& work);

  Mutex mutex_;  // of what follows
  std::list<Known> known_;
  bool declined_ = false;  // the device records nothing
  std::atomic<int> replays_ = 0;
};

}  // namespace ort
