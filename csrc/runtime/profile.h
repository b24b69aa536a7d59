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
  };
  std::vector<Event> events;
  // The trace event format that chrome://tracing and Perfetto read.
  std::string chrome_trace() const;
};

double now_us();

}  // namespace ort
