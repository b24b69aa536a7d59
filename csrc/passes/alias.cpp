// One walk: a view's input comes before it.
#include "csrc/passes/alias.h"

#include <numeric>

#include "csrc/graph/schema.h"

namespace ort {

std::vector<ValueId> sources(const Graph& graph) {
  std::vector<ValueId> result(graph.value_count());
  std::iota(result.begin(), result.end(), 0);
  for (const Node* node : graph.order())
    if (node->schema->is_view())
      result[static_cast<size_t>(node->out[0])] = result[static_cast<size_t>(node->in[0])];
  return result;
}

}  // namespace ort
