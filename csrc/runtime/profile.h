// Times of steps, and a Chrome trace of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/mutex.h"

namespace ort {

// Several threads may add to it and read it.
class Profile {
 public:
  struct Event {
    std::string name;
    std::string provider;
    double start_us, duration_us;
    size_t step;                 // of the plan
    const void* plan = nullptr;  // only compared
  };
  void add(Event event);
  std::vector<Event> events() const;
  // The trace event format that chrome://tracing and Perfetto read; times from the first event on.
  std::string chrome_trace() const;

 private:
  mutable Mutex mutex_;
  std::vector<Event> events_;
};

double now_us();

}  // namespace ort
