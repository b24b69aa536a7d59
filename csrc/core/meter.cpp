// Counting by the thread that allocates, and dropping by whoever frees.
#include "csrc/core/meter.h"

#include <utility>

#include "csrc/core/error.h"

namespace ort {
namespace {

thread_local std::shared_ptr<Meter> current;

}  // namespace

void Meter::require(size_t more) const {
  const size_t held = held_;
  check(more <= limit_ && held <= limit_ - more,
        "the run needs {} bytes, the session's limit is {}", held + more, limit_);
}

void Meter::add(size_t bytes) {
  require(bytes);
  held_ += bytes;
}

Metering::Metering(std::shared_ptr<Meter> meter)
    : before_(std::exchange(current, std::move(meter))) {}

Metering::~Metering() {
  current = std::move(before_);
}

Charge::Charge(size_t bytes) : meter_(current) {
  set(bytes);
}

Charge::Charge(Charge&& other) noexcept
    : meter_(std::move(other.meter_)), bytes_(std::exchange(other.bytes_, 0)) {}

Charge::~Charge() {
  if (meter_) meter_->drop(bytes_);
}

void Charge::set(size_t bytes) {
  if (!meter_) return;
  if (bytes > bytes_)
    meter_->add(bytes - bytes_);
  else
    meter_->drop(bytes_ - bytes);
  bytes_ = bytes;
}

}  // namespace ort
