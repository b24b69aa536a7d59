// The order of the passes.
#include "csrc/passes/pipeline.h"

#include "csrc/graph/verify.h"
#include "csrc/passes/cse.h"
#include "csrc/passes/dce.h"

namespace ort {

void raise(Graph& graph, const PassOptions& options) {
  remove_dead(graph);
  if (options.check) verify(graph, "raise");
}

void optimise(Graph& graph, const PassOptions& options) {
  merge_equal(graph);
  remove_dead(graph);
  if (options.check) verify(graph, "optimise");
}

}  // namespace ort
