// The clock and the trace file.
#include "csrc/runtime/profile.h"

#include <chrono>

#include "csrc/core/format.h"
#include "csrc/runtime/json.h"

namespace ort {

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

namespace {

// All digits of a microsecond: a stream would round to six.
std::string decimal(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", us);
  return text;
}

}  // namespace

void Profile::add(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<Profile::Event> Profile::events() const {
  std::lock_guard lock(mutex_);
  return events_;
}

std::string Profile::chrome_trace() const {
  const std::vector<Event> events = this->events();
  std::string text = "{\"traceEvents\": [";
  const char* comma = "";
  for (const Event& event : events) {
    text += format(
        "{}\n{\"name\": {}, \"cat\": {}, \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": {}, "
        "\"dur\": {}}",
        comma, json_text(event.name), json_text(event.provider),
        decimal(event.start_us - events.front().start_us), decimal(event.duration_us));
    comma = ",";
  }
  return text + "\n]}\n";
}

}  // namespace ort
