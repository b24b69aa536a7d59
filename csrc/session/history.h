// What a node that owns bodies has kept of a run, for its gradient.
#pragma once

#include <vector>

#include "csrc/core/item.h"

namespace ort {

struct History {
  std::vector<std::vector<Item>> trips;  // the stash of each
  std::vector<Sizes> last;               // of the states after the last trip
  size_t branch = 0;                     // of If: which of its bodies ran
};

}  // namespace ort
