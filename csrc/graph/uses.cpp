// Who reads a value.
#include <utility>

#include "csrc/graph/graph.h"

namespace ort {

void Uses::drop(const Node* node, int index) {
  const auto is_it = [&](size_t i) { return all_[i].node == node && all_[i].index == index; };
  for (size_t low = gone_, high = all_.size(); low < high; ++low) {
    if (is_it(--high)) low = high;
    if (!is_it(low)) continue;
    if (low == gone_)
      ++gone_;
    else
      all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(low));
    return;
  }
}

std::vector<Use> Uses::take() {
  all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(std::exchange(gone_, 0)));
  return std::exchange(all_, {});
}

}  // namespace ort
