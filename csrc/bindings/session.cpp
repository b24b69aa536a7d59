// InferenceSession and ONNX files in Python.
#include <pybind11/stl.h>

#include <map>

#include "csrc/bindings/bindings.h"
#include "csrc/onnx/onnx.h"
#include "csrc/session/export.h"
#include "csrc/session/inference_session.h"

namespace py = pybind11;

namespace ort {
namespace {

SessionLimits limits_of(std::optional<size_t> bytes, std::optional<double> operations) {
  return {bytes, operations};
}

// The outputs that `names` lists, in its order, one as often as it stands there.
void choose_outputs(Graph& graph, const std::vector<std::pair<std::string, std::string>>& names) {
  std::map<std::string, ValueId> found;
  for (const Output& output : graph.outputs()) found[output.name] = output.value;
  while (!graph.outputs().empty()) graph.drop_output(graph.outputs().size() - 1);
  for (const auto& [from, name] : names) graph.output(graph.value(found.at(from)), name);
}

// A graph's standard form with `weights` (by input name) inlined as constants, inputs renamed by
// `names`, and the outputs that `outputs` lists, each with its name in the file.
void export_onnx(const Graph& graph, const std::map<std::string, py::array>& weights,
                 const std::map<std::string, std::string>& names,
                 const std::vector<std::pair<std::string, std::string>>& outputs,
                 const std::string& path) {
  const auto copy = graph.clone();
  choose_outputs(*copy, outputs);
  for (const ValueId id : copy->inputs())
    if (names.count(copy->value(id).name()))
      copy->set_name(copy->value(id), names.at(copy->value(id).name()));
  for (const ValueId id : std::vector<ValueId>(copy->inputs())) {
    const auto found = weights.find(copy->value(id).name());
    if (found == weights.end()) continue;
    Insertion front(*copy, copy->first());
    const Value constant = copy->constant(tensor_of(found->second));
    copy->set_name(constant, found->first);
    copy->replace(copy->value(id), constant, "export");
    copy->drop_input(id);
  }
  standardise(*copy);
  write_onnx_file(*copy, path);
}

}  // namespace

void bind_session(py::module_& m) {
  py::class_<InferenceSession>(m, "Session")
      .def(
          "run",
          [](InferenceSession& session, const py::object& names, const py::object& feed) {
            return run_session(session, names, feed);
          },
          py::arg("names"), py::arg("feed"))
      .def("terminate", &InferenceSession::terminate)
      .def("set_threads", &InferenceSession::set_threads)
      .def("providers", &InferenceSession::providers, py::call_guard<py::gil_scoped_release>());
  py::class_<SessionLimits>(m, "SessionLimits")
      .def(py::init(&limits_of), py::arg("bytes"), py::arg("operations"));
  m.def("export_onnx", &export_onnx, py::arg("graph"), py::arg("weights"), py::arg("names"),
        py::arg("outputs"), py::arg("path"));
  m.def(
      "read_onnx",
      [](const std::string& path, bool map) {
        return std::shared_ptr<Graph>(read_onnx_file(path, *file_ops(), map));
      },
      py::arg("path"), py::arg("map") = false);
  m.def(
      "write_onnx",
      [](const Graph& graph, const std::string& path, size_t inside_limit) {
        write_onnx_file(graph, path, inside_limit);
      },
      py::arg("graph"), py::arg("path"), py::arg("inside_limit") = size_t{1} << 30);
}

}  // namespace ort
