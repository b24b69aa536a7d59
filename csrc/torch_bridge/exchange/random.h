// Torch's generators: the key of a call, and the states that a forward draws from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "csrc/core/device.h"

namespace ort::bridge {

// One draw from the default generator of the device: same seed, same run. A generator that counts
// its draws gives seed and offset, the host's a number.
uint64_t draw_key(Device device);

// The states of the generators that code on a device draws from: the host's, and the device's.
class RandomState {
 public:
  RandomState() = default;  // none
  static RandomState now(Device device);
  bool known() const { return !states_.empty(); }
  void set() const;

 private:
  Device device_;
  std::vector<at::Tensor> states_;
};

// The generators in an earlier state, for one scope; of none, as they are.
class Rewound {
 public:
  Rewound(const RandomState& state, Device device);
  ~Rewound() { now_.set(); }
  Rewound(const Rewound&) = delete;

 private:
  RandomState now_;
};

}  // namespace ort::bridge
