// One total for all programs of a session.
#include "csrc/passes/folded_bytes.h"

#include <algorithm>
#include <utility>

namespace ort {
namespace {

// Much less than a file may ask for, and more than what models fold.
constexpr size_t kMost = size_t{256} << 20;

}  // namespace

FoldedBytes::FoldedBytes(Total total)
    : total_(total ? std::move(total) : std::make_shared<std::atomic<size_t>>(0)) {}

bool FoldedBytes::fits(size_t more) const {
  return *total_ + more <= kMost;
}

// Of constants that were the file's nothing is counted, and nothing given back.
void FoldedBytes::add(size_t made, size_t freed) {
  const size_t less = std::min(freed, own_ + made);
  own_ += made - less;
  *total_ += made - less;
}

}  // namespace ort
