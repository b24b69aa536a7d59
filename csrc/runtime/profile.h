// Times of steps, and a Chrome trace of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ort {

struct Profile {
  struct Event {
    std::string name;
    std::string provider;
    double start_us, duration_us;
    size_t step;  // of the plan
  };
  std::vector<Event> events;
  // The trace event format that chrome://tracing and Perfetto read; times from the first event on.
  std::string chrome_trace() const;
};

double now_us();

}  // namespace ort
