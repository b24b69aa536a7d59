// Single passes from Python: tests/graphs and the tools run them by name.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/graph/verify.h"
#include "csrc/passes/cse.h"
#include "csrc/passes/dce.h"
#include "csrc/passes/fold_constants.h"
#include "csrc/passes/fuse.h"
#include "csrc/passes/pipeline.h"
#include "csrc/passes/siblings.h"
#include "csrc/passes/simplify.h"
#include "csrc/session/evaluator.h"

namespace py = pybind11;

namespace ort {
namespace {

// Runs one pass in place, in checked mode; returns how many changes it made.
size_t run_pass(Graph& graph, const std::string& name, std::optional<int> fuel,
                const std::vector<std::string>& off) {
  const Provider* reference = find_provider("reference");
  check(reference != nullptr, "passes need the reference provider");
  ProviderEvaluator evaluator(*reference);
  PassOptions quantized{true, fuel, off, &evaluator};
  const RewriteOptions options{fuel ? &*fuel : nullptr, &off, &evaluator};
  size_t changes = 0;
  if (name == "recompose")
    changes = rewrite(graph, recompose_rules(graph.ops()), options);
  else if (name == "quantized")
    changes = join_quantized(graph, quantized);
  else if (name == "simplify")
    changes = rewrite(graph, simplify_rules(), options);
  else if (name == "fuse")
    changes = rewrite(graph, fuse_rules(graph.ops()), options);
  else if (name == "cse")
    changes = merge_equal(graph);
  else if (name == "siblings")
    changes = join_siblings(graph);
  else if (name == "dce")
    changes = remove_dead(graph);
  else if (name == "fold_constants")
    changes = fold_constants(graph, evaluator);
  else
    fail(
        "unknown pass '{}', known: recompose, quantized, simplify, fuse, cse, siblings, dce, "
        "fold_constants",
        name);
  verify(graph, name);
  return changes;
}

}  // namespace

void bind_passes(py::module_& m) {
  m.def("run_pass", &run_pass, py::arg("graph"), py::arg("name"), py::arg("fuel") = py::none(),
        py::arg("off") = std::vector<std::string>{});
  m.def("rules", [](const Graph& graph) {
    std::vector<std::string> names;
    const Rules fuse = fuse_rules(graph.ops());
    for (const Rules* rules :
         {&quantized_rules(), &recompose_rules(graph.ops()), &simplify_rules(), &fuse})
      for (const Rule& rule : *rules) names.push_back(rule.name());
    return names;
  });
}

}  // namespace ort
