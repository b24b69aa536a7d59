// What a plan says of itself, and its end.
#include "csrc/plan/plan.h"

#include <algorithm>
#include <numeric>

#include "csrc/core/log.h"

namespace ort {
namespace {

constexpr size_t kLargestShown = 5;

std::string maker_of(const Plan& plan, const Placed& value) {
  const Step& step = plan.steps[static_cast<size_t>(value.first)];
  const std::string place = step.node.text();
  return format("{} bytes made by {}{}{}", value.bytes, step.name, place.empty() ? "" : ", ",
                place);
}

}  // namespace

Plan::~Plan() {
  for (const PlanDevice& device : devices) try {
      if (device.runtime) device.runtime->synchronize();
    } catch (const std::exception& error) {
      log("{}: {}", device.device, error.what());
    }
  if (errors) errors->leave(*this);
}

size_t Plan::arena_bytes() const {
  return std::accumulate(placement.bytes.begin(), placement.bytes.end(), size_t{0});
}

std::string layout_of(const Plan& plan, const Step& step) {
  for (int o = step.out; o < step.out + step.n_out; ++o) {
    const int slot = plan.operands[static_cast<size_t>(o)];
    if (slot < 0) continue;
    const Layout& layout = plan.placement.slots[static_cast<size_t>(slot)].layout;
    if (layout.blocked()) return layout.text();
  }
  return {};
}

std::string describe_peak(const Plan& plan) {
  std::string text;
  for (size_t d = 0; d < plan.devices.size(); ++d)
    text += format("{}{} bytes on {}", d ? ", " : "the plan needs ", plan.placement.bytes[d],
                   plan.devices[d].device);
  std::vector<Placed> values = plan.values;
  std::stable_sort(values.begin(), values.end(),
                   [](const Placed& a, const Placed& b) { return a.bytes > b.bytes; });
  values.resize(std::min(values.size(), kLargestShown));
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? "; " : ", the largest values: ") + maker_of(plan, values[i]);
  return text;
}

}  // namespace ort
