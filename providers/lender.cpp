// One lender a kind.
#include "providers/lender.h"

#include <array>
#include <atomic>

namespace ort {
namespace {

std::array<std::atomic<Lender*>, 3> lenders{};

}  // namespace

void lend(DeviceKind kind, Lender& lender) {
  lenders[static_cast<size_t>(kind)] = &lender;
}

Lender* lender(DeviceKind kind) {
  return lenders[static_cast<size_t>(kind)];
}

}  // namespace ort
