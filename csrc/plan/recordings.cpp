// A list in the order of use is short: a plan has few stretches, each with few addresses.
#include "csrc/plan/recordings.h"

#include <algorithm>

#include "csrc/core/error.h"
#include "csrc/core/log.h"

namespace ort {

void Recordings::queue(const Stretch& stretch, DeviceRuntime& runtime, Stream& stream,
                       const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    Known* known = declined_ ? nullptr : find(stretch);
    if (known && (known->recording || record(*known, runtime, work))) {
      ++replays_;
      return known->recording->replay(stream);
    }
    if (!known && !declined_) add(stretch);
  }
  work(stream);
}

Recordings::Known* Recordings::find(const Stretch& stretch) {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.stretch == stretch; });
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return &known_.front();
}

void Recordings::add(const Stretch& stretch) {
  size_t alike = 0;
  for (auto known = known_.begin(); known != known_.end();) {
    const Stretch& other = known->stretch;
    const bool same_steps = other.first == stretch.first && other.last == stretch.last;
    alike += same_steps;
    known = same_steps && alike >= kMostOfAStretch ? known_.erase(known) : std::next(known);
  }
  known_.push_front({stretch, nullptr});
}

// A call that can be made without a recording does not fail for one: what is wrong with a step
// itself is raised when it is queued. Recordings take memory of the device's that a run may need.
bool Recordings::record(Known& known, DeviceRuntime& runtime, const Work& work) {
  try {
    known.recording = runtime.record(work);
    declined_ = !known.recording;
  } catch (const Error& error) {
    log("steps are queued one by one, as their device does not record them: {}", error.what());
    known_.clear();
    declined_ = true;
  }
  return !declined_;
}

}  // namespace ort
