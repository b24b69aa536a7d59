// Names of devices, and the host as a device: its work is done at once.
#include "csrc/core/device.h"

#include "csrc/core/error.h"
#include "csrc/core/format.h"

namespace ort {
namespace {

class Done final : public Event {
 public:
  void synchronize() override {}
};

class HostStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override { return std::make_unique<Done>(); }
  void wait(Event& event) override { event.synchronize(); }
  void synchronize() override {}
};

}  // namespace

std::string Device::text() const {
  if (is_host()) return "cpu";
  return format("{}:{}", kind == DeviceKind::cuda ? "cuda" : "private_use", index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << device.text();
}

bool Memory::is_done(Event&) {
  fail("a device does not tell which of its events have passed");
}

Stream& host_stream() {
  static HostStream stream;
  return stream;
}

}  // namespace ort
