// Opening an ONNX file in Python: a session, and what the file says of itself.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/onnx/onnx.h"
#include "csrc/passes/fold_constants.h"
#include "csrc/passes/pipeline.h"
#include "csrc/program/evaluator.h"
#include "csrc/session/export.h"
#include "csrc/session/inference_session.h"

namespace py = pybind11;

namespace ort {
namespace {

using Opened = std::pair<std::unique_ptr<InferenceSession>, ModelHead>;

Opened open_file(const std::string& path, const CompileOptions& options, bool trusted,
                 SessionLimits limits, const ReadAs& as) {
  const auto ops = file_ops();
  py::gil_scoped_release release;
  ModelHead head;
  const auto graph = read_onnx_file(path, *ops, trusted, as, &head);
  return {std::make_unique<InferenceSession>(*graph, options, limits), std::move(head)};
}

Opened open_bytes(const py::bytes& bytes, const CompileOptions& options, SessionLimits limits,
                  const ReadAs& as) {
  const std::string_view view = bytes;
  const auto ops = file_ops();
  py::gil_scoped_release release;
  ModelHead head;
  const auto graph = read_onnx({view.data(), view.size()}, *ops, as, &head);
  return {std::make_unique<InferenceSession>(*graph, options, limits), std::move(head)};
}

// As ONNX writes an element type: numpy's names but for some.
std::string onnx_name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f4e2m1:
      return "float4e2m1";
    case DType::f8e8m0:
      return "float8e8m0";
    case DType::f6e2m3:
      return "float6e2m3";
    case DType::f6e3m2:
      return "float6e3m2";
    default:
      std::string name(name_of(dtype));
      std::erase(name, '_');
      return name;
  }
}

// As ONNX writes it: tensor(float), seq(tensor(int64)), map(string,tensor(float)).
std::string onnx_text(const Type& type) {
  switch (type.kind) {
    case Type::Kind::tensor:
      return format("tensor({})", onnx_name_of(type.dtype));
    case Type::Kind::sequence:
      return format("seq({})", onnx_text(type.held()));
    case Type::Kind::optional:
      return format("optional({})", onnx_text(type.held()));
    case Type::Kind::map:
      return format("map({},{})", onnx_name_of(type.dtype), onnx_text(type.held()));
    default:
      return type.text();
  }
}

// Numbers, the file's names, None for the rest; nothing where the rank is not known.
py::list shape_of(const Type& type) {
  if (type.kind == Type::Kind::optional) return shape_of(type.held());
  py::list shape;
  for (const Dim& dim : type.dims.value_or(Dims{})) {
    const auto name = dim.symbol_name();
    if (dim.value())
      shape.append(py::int_(*dim.value()));
    else if (name && !Graph::is_fresh(*name))
      shape.append(py::str(*name));
    else
      shape.append(py::none());
  }
  return shape;
}

// (name, type, shape) of each.
py::list ports_of(const std::vector<ModelHead::Port>& ports) {
  py::list result;
  for (const auto& port : ports)
    result.append(py::make_tuple(port.name, onnx_text(port.type), shape_of(port.type)));
  return result;
}

std::unique_ptr<ReadAs> read_as(std::map<std::string, int64_t> sizes,
                                std::map<std::string, int64_t> denoted,
                                const std::map<std::string, py::object>& initializers,
                                std::set<std::string> external,
                                const std::map<std::string, py::object>& files,
                                std::set<std::string> open) {
  auto as = std::make_unique<ReadAs>();
  as->sizes = std::move(sizes);
  as->denoted = std::move(denoted);
  for (const auto& [name, value] : initializers) as->initializers.emplace(name, held_of(value));
  as->external = std::move(external);
  for (const auto& [name, bytes] : files) as->files.emplace(name, held_of(bytes));
  as->open = std::move(open);
  as->allocate = &discardable_tensor;
  return as;
}

// The session's graph in its simplest form that any runtime reads.
void write_simplified(const InferenceSession& session, const std::string& path) {
  py::gil_scoped_release release;
  const HeldConstants held = hold_constants(session.graph());
  const auto graph = session.graph().clone();
  const Provider* reference = find_provider("reference");
  check(reference != nullptr, "passes need the reference provider");
  ProviderEvaluator evaluator(*reference);
  FoldedBytes folded;
  PassOptions options;
  options.folded = &folded;
  options.evaluator = &evaluator;
  options.for_file = true;
  prepare(*graph, options);
  standardise(*graph);
  write_onnx_file(*graph, path);
}

}  // namespace

void bind_model(py::module_& m) {
  py::class_<ReadAs>(m, "ReadAs")
      .def(py::init(&read_as), py::kw_only(), py::arg("sizes"), py::arg("denoted"),
           py::arg("initializers"), py::arg("external"), py::arg("files"), py::arg("open"));
  py::class_<ModelHead>(m, "ModelHead")
      .def_readonly("version", &ModelHead::version)
      .def_readonly("producer", &ModelHead::producer)
      .def_readonly("domain", &ModelHead::domain)
      .def_readonly("description", &ModelHead::description)
      .def_readonly("graph_name", &ModelHead::graph_name)
      .def_readonly("graph_description", &ModelHead::graph_description)
      .def_readonly("metadata", &ModelHead::metadata)
      .def("inputs", [](const ModelHead& head) { return ports_of(head.inputs); })
      .def("outputs", [](const ModelHead& head) { return ports_of(head.outputs); })
      .def("overridable", [](const ModelHead& head) { return ports_of(head.overridable); });
  m.def("open_file", &open_file);
  m.def("open_bytes", &open_bytes);
  m.def("write_simplified", &write_simplified);
  m.def(
      "array_over", [](const py::object& object) { return array_of(held_of(object)); },
      "An array in the memory of what has `__dlpack__`.");
  m.def(
      "dtypes",
      [] {
        py::dict names;
        for (int number = 1; number < kDTypes; ++number) {
          const auto dtype = static_cast<DType>(number);
          names[py::int_(number)] = py::make_tuple(onnx_name_of(dtype), name_of(dtype));
        }
        return names;
      },
      "ONNX's numbers of element types, with ONNX's names and numpy's.");
}

}  // namespace ort
