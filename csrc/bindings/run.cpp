// Differentiating and running graphs from Python: the op table, the tools and InferenceSession.
#include <pybind11/stl.h>

#include <set>

#include "csrc/bindings/bindings.h"
#include "csrc/ops/quantized/linear.h"
#include "csrc/session/inference_session.h"
#include "gradient_graph/differentiate.h"
#include "gradient_graph/gradient_nodes.h"
#include "providers/provider.h"

namespace py = pybind11;

namespace ort {
namespace {

// A graph compiled once, in checked mode, and run on feeds of any sizes.
class Compiled {
 public:
  Compiled(const Graph& graph, std::vector<std::string> providers)
      : session_(graph, options_of(std::move(providers))) {}

  py::list run(const py::dict& feed) { return run_session(session_, py::none(), feed); }
  std::vector<std::pair<std::string, std::string>> layouts() { return session_.layouts(); }

 private:
  static CompileOptions options_of(std::vector<std::string> providers) {
    CompileOptions options;
    options.providers = std::move(providers);
    options.check = true;
    return options;
  }

  InferenceSession session_;
};

py::list evaluate(const Graph& graph, const py::dict& feed, std::vector<std::string> providers) {
  return Compiled(graph, std::move(providers)).run(feed);
}

std::shared_ptr<Graph> differentiate(const Graph& graph, const std::vector<std::string>& wrt,
                                     const std::vector<std::string>& outputs) {
  std::shared_ptr<Graph> joint = graph.clone();
  grad::expand_gradient_nodes(*joint);
  quantized::join_roundings(*joint);
  std::vector<ValueId> values;
  for (const std::string& name : wrt) {
    const size_t before = values.size();
    for (const ValueId id : joint->inputs())
      if (joint->value(id).name() == name) values.push_back(id);
    check(values.size() == before + 1, "the graph has no input '{}'", name);
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < joint->outputs().size(); ++i)
    for (const std::string& name : outputs)
      if (joint->outputs()[i].name == name) indices.push_back(i);
  check(indices.size() == outputs.size(), "the graph lacks one of the outputs {}", outputs);
  grad::differentiate(*joint, indices, values);
  return joint;
}

std::set<std::string> device_kinds() {
  std::set<std::string> kinds{Device{}.text()};
  for (const DeviceKind kind : {DeviceKind::cuda, DeviceKind::private_use})
    for (const std::string& name : provider_names())
      if (find_provider(name)->gives(kind)) {
        const std::string device = Device{kind, 0}.text();
        kinds.insert(device.substr(0, device.find(':')));
      }
  return kinds;
}

}  // namespace

void bind_run(py::module_& m) {
  py::class_<Compiled>(m, "Compiled")
      .def(py::init<const Graph&, std::vector<std::string>>(), py::arg("graph"),
           py::arg("providers"))
      .def("run", &Compiled::run, py::arg("feed"))
      .def("layouts", &Compiled::layouts,
           "Steps of the latest plan whose results are not row-major, and how these lie.");
  m.def("evaluate", &evaluate, py::arg("graph"), py::arg("feed"), py::arg("providers"),
        "Partitions, plans and runs a graph once; returns its outputs in order.");
  m.def("differentiate", &differentiate, py::arg("graph"), py::arg("wrt"), py::arg("outputs"),
        "A copy with inputs d_<output> and outputs d_<input> added.");
  m.def("providers", &provider_names);
  m.def("device_kinds", &device_kinds, "Kinds of devices whose memory some provider gives.");
}

}  // namespace ort
