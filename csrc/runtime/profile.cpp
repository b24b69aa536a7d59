// The clock and the trace file.
#include "csrc/runtime/profile.h"

#include <chrono>

#include "csrc/core/format.h"

namespace ort {

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

std::string Profile::chrome_trace() const {
  std::string text = "{\"traceEvents\": [";
  const char* comma = "";
  for (const Event& event : events) {
    text += format(
        "{}\n{\"name\": \"{}\", \"cat\": \"{}\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": "
        "{}, \"dur\": {}}",
        comma, event.name, event.provider, event.start_us, event.duration_us);
    comma = ",";
  }
  return text + "\n]}\n";
}

}  // namespace ort
