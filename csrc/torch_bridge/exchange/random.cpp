// Every access under the generator's mutex.
#include "csrc/torch_bridge/exchange/random.h"

#include <ATen/Context.h>

#include "csrc/torch_bridge/exchange/memory.h"
#include "csrc/torch_bridge/internals/generator.h"

namespace ort::bridge {
namespace {

constexpr uint64_t kOffsetStep = 4;  // torch's offsets count in fours, as Philox gives four numbers

std::vector<at::Generator> generators(Device device) {
  std::vector<at::Generator> result{host_generator()};
  if (!device.is_host())
    result.push_back(at::globalContext().defaultGenerator(torch_device(device)));
  return result;
}

// Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (2014), the mixing function.
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t draw_key(Device device) {
  at::Generator generator = generators(device).back();
  std::lock_guard lock(generator.mutex());
  if (device.is_host()) return draw(generator);
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + kOffsetStep);
  return mixed(generator.current_seed() + 0x9e3779b97f4a7c15ull * (offset + 1));
}

RandomState RandomState::now(Device device) {
  RandomState result;
  result.device_ = device;
  for (at::Generator& generator : generators(device)) {
    std::lock_guard lock(generator.mutex());
    result.states_.push_back(generator.get_state());
  }
  return result;
}

void RandomState::set() const {
  if (!known()) return;
  std::vector<at::Generator> all = generators(device_);
  for (size_t i = 0; i < all.size(); ++i) {
    std::lock_guard lock(all[i].mutex());
    all[i].set_state(states_[i]);
  }
}

Rewound::Rewound(const RandomState& state, Device device) {
  if (!state.known()) return;
  now_ = RandomState::now(device);
  state.set();
}

}  // namespace ort::bridge
