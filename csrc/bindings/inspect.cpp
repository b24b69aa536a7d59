// What tests and docs/ops.md ask of the engine: definitions, patterns, refusals, the pool's bytes,
// how many tile programs were made.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/core/pool.h"
#include "csrc/graph/expand.h"
#include "csrc/ops/ops.h"
#include "providers/provider.h"
#include "providers/tile/programs.h"

namespace py = pybind11;

namespace ort {
namespace {

std::shared_ptr<Graph> expand_op(const Graph& graph, const std::string& op) {
  std::shared_ptr<Graph> copy = graph.clone();
  expand_all(*copy, [&](const Node& node) { return node.is(op); });
  return copy;
}

// Why each node is not run by the provider, in program order; "" where it is.
std::vector<std::string> refusals(const Graph& graph, const std::string& name) {
  const Provider* provider = find_provider(name);
  check(provider != nullptr, "there is no provider '{}'", name);
  std::vector<std::string> reasons;
  for (const Node* node : graph.order()) reasons.push_back(provider->can_run(*node).reason);
  return reasons;
}

// Why the op's definition is no pattern; "" where it is one.
std::string pattern_refusal(const std::string& op) {
  const OpSchema& schema = default_ops().get(op);
  check(static_cast<bool>(schema.definition()), "[{}] has no definition", op);
  Graph graph(default_ops(), true);
  std::vector<Value> in;
  for (const OpSchema::Port& port : schema.inputs()) in.push_back(graph.input(port.name, {}));
  try {
    schema.definition()(OpCall(graph, in, {}, schema.outputs().size()));
  } catch (const NotAPattern& reason) {
    return reason.what();
  }
  return "";
}

}  // namespace

void bind_inspect(py::module_& m) {
  m.def("expand", &expand_op, py::arg("graph"), py::arg("op"),
        "A copy in which every node of the op is replaced by its definition.");
  m.def("refusals", &refusals, py::arg("graph"), py::arg("provider"));
  m.def("pattern_refusal", &pattern_refusal, py::arg("op"));
  m.def("tile_programs", &tile::programs_made, "Tile programs made so far.");
  m.def("pool_bytes", &pool_bytes, "Bytes that the memory pool holds, in use or idle.");
}

}  // namespace ort
