// The lists of passes: before differentiation and after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/graph/graph.h"

namespace ort {

struct PassOptions {
  bool check = false;            // verify after each pass
  std::optional<int> fuel;       // only the first n rewrites
  std::vector<std::string> off;  // rules and passes to leave out
};

// Canonicalise and recompose, on graphs without gradients.
void raise(Graph& graph, const PassOptions& options);
// Simplify and fuse, on joint or inference graphs.
void optimise(Graph& graph, const PassOptions& options);

}  // namespace ort
