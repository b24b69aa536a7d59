// What a node that owns bodies has kept of a run, for its gradient.
#pragma once

#include "csrc/program/column.h"

namespace ort {

struct BodyHistory {
  size_t trips = 0;
  std::vector<Column> stash;  // by item: of each trip
  std::vector<Sizes> last;    // of the states after the last trip
  size_t branch = 0;          // of If: which of its bodies ran

  void pop_to(size_t size) {
    trips = size;
    for (Column& column : stash) column.pop_to(size);
  }
};

}  // namespace ort
