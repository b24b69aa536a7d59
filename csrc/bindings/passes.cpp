// Single passes from Python: tests/graphs and the tools run them by name.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/passes/pipeline.h"
#include "csrc/program/evaluator.h"

namespace py = pybind11;

namespace ort {
namespace {

// Runs one pass in place, in checked mode; returns how many changes it made.
size_t run_one(Graph& graph, const std::string& name, std::optional<int> fuel,
               const std::vector<std::string>& off) {
  const Provider* reference = find_provider("reference");
  check(reference != nullptr, "passes need the reference provider");
  ProviderEvaluator evaluator(*reference);
  PassOptions options{true, fuel, off, &evaluator};
  return run_pass(name, graph, options);
}

}  // namespace

void bind_passes(py::module_& m) {
  m.def("run_pass", &run_one, py::arg("graph"), py::arg("name"), py::arg("fuel") = py::none(),
        py::arg("off") = std::vector<std::string>{});
  m.def("rules", [](const Graph& graph) { return rule_names(graph.ops()); });
}

}  // namespace ort
