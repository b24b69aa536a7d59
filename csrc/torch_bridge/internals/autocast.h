// Torch's autocast as it is set in this thread. Of torch: how many types of devices know it.
#pragma once

#include <ATen/autocast_mode.h>

#include <array>
#include <string>
#include <vector>

namespace ort::bridge {

struct Autocast {
  uint64_t on;  // the devices' dispatch keys
  // By device type, on or off: an autocast in forward that names none takes it.
  std::array<at::ScalarType, at::autocast::_AUTOCAST_SUPPORTED_DEVICES.size()> dtypes;
  bool operator==(const Autocast&) const = default;
  static Autocast now();
};

// The types of devices on which it is on, as torch names them.
std::vector<std::string> autocast_devices();

}  // namespace ort::bridge
