// Graphs in Python: what ortmodule/translate builds and what the tests read.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/graph/text.h"
#include "csrc/ops/ops.h"
#include "csrc/passes/verify.h"

namespace py = pybind11;

namespace ort {
namespace {

Dim dim_of(const py::handle& item) {
  if (py::isinstance<py::str>(item)) return Dim::parse(item.cast<std::string>());
  return item.cast<int64_t>();
}

Dims dims_of(const py::iterable& items) {
  Dims dims;
  for (const py::handle& item : items) dims.push_back(dim_of(item));
  return dims;
}

py::object dim_object(const Dim& dim) {
  if (const auto value = dim.value()) return py::int_(*value);
  return py::str(dim.text());
}

template <class T>
std::vector<T> list_of(const py::sequence& items) {
  std::vector<T> values;
  for (const py::handle& item : items) values.push_back(item.cast<T>());
  return values;
}

Attr attr_of(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return static_cast<int64_t>(value.cast<bool>());
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) {
    const std::string text = value.cast<std::string>();
    if (name == "to") return static_cast<int64_t>(dtype_named(text));
    return text;
  }
  if (py::isinstance<py::array>(value)) return tensor_of(value.cast<py::array>());
  check(py::isinstance<py::sequence>(value), "attribute '{}' has an unknown type", name);
  const auto items = value.cast<py::sequence>();
  if (name == "dims") return dims_of(items);
  if (py::len(items) == 0) return std::vector<int64_t>{};
  const py::object first = items[0];
  if (py::isinstance<py::str>(first)) return list_of<std::string>(items);
  bool floats = false;
  for (const py::handle& item : items) floats = floats || py::isinstance<py::float_>(item);
  if (floats) return list_of<double>(items);
  return list_of<int64_t>(items);
}

Attrs attrs_of(const py::dict& items) {
  Attrs attrs;
  for (const auto& [name, value] : items)
    if (!value.is_none())
      attrs.set(name.cast<std::string>(), attr_of(name.cast<std::string>(), value));
  return attrs;
}

using SharedGraph = std::shared_ptr<Graph>;

// A Value that keeps its graph alive.
struct Handle {
  Value value;
  SharedGraph graph;
};

std::vector<Handle> handles(const SharedGraph& graph, const std::vector<Value>& values) {
  std::vector<Handle> result;
  for (const Value& value : values) result.push_back({value, graph});
  return result;
}

// A graph that is built for a node to own. It is given to one, whose graph it then lives with.
struct NewBody {
  SharedGraph around;
  std::unique_ptr<Graph> own;
  Graph* graph;
};
using SharedBody = std::shared_ptr<NewBody>;

SharedBody new_body(const SharedGraph& around) {
  auto own = around->new_body();
  Graph* graph = own.get();
  return std::make_shared<NewBody>(NewBody{around, std::move(own), graph});
}

SharedGraph graph_of(const SharedBody& body) {
  return {body, body->graph};  // of the body's lifetime
}

std::vector<Handle> emit(const SharedGraph& graph, const std::string& op,
                         const std::vector<std::optional<Handle>>& in, const py::dict& attrs,
                         int n_outputs, const std::string& domain,
                         const std::vector<std::pair<std::string, SharedBody>>& given) {
  std::vector<Value> inputs;
  for (const auto& handle : in) inputs.push_back(handle ? handle->value : Value{});
  for (const auto& [name, body] : given)
    check(body->own && body->around == graph, "[{}] {} belongs to another {}", op, name,
          body->own ? "graph" : "node");
  Bodies bodies;
  for (const auto& [name, body] : given) bodies.emplace_back(name, std::move(body->own));
  return handles(graph, graph->emit(domain.empty() ? op : domain + "::" + op, inputs,
                                    attrs_of(attrs), n_outputs, std::move(bodies)));
}

void set_where(Graph& graph, const std::string& module, const std::string& file, int line) {
  graph.context.where = std::make_shared<Where>(Where{module, file, line});
}

py::list dims_list(const Dims& dims) {
  py::list items;
  for (const Dim& dim : dims) items.append(dim_object(dim));
  return items;
}

void bind_value(py::module_& m) {
  py::class_<Handle>(m, "Value")
      .def_property_readonly("dtype",
                             [](const Handle& h) { return std::string(name_of(h.value.dtype())); })
      .def_property_readonly("dims", [](const Handle& h) { return dims_list(h.value.dims()); })
      .def_property_readonly("rank", [](const Handle& h) { return h.value.rank(); })
      .def_property_readonly("id", [](const Handle& h) { return h.value.id; })
      .def_property_readonly("type", [](const Handle& h) { return h.value.type().text(); })
      .def_property_readonly("contents",
                             [](const Handle& h) -> py::object {
                               const auto& known = h.graph->contents(h.value.id);
                               return known ? py::object(dims_list(*known)) : py::none();
                             })
      .def("__eq__", [](const Handle& a, const Handle& b) { return a.value == b.value; })
      .def("__hash__", [](const Handle& h) { return h.value.id; })
      .def("__repr__",
           [](const Handle& h) { return format("%{}: {}", h.value.id, h.value.type().text()); });
}

void bind_node(py::module_& m) {
  py::class_<Node, std::unique_ptr<Node, py::nodelete>>(m, "Node")
      .def_property_readonly("op", &Node::qualified)
      .def_property_readonly("by", [](const Node& n) { return n.by; })
      .def_property_readonly("segment", [](const Node& n) { return n.segment; })
      .def_property_readonly(
          "where", [](const Node& n) { return n.where ? n.where->text() : std::string(); })
      .def_property_readonly(
          "module", [](const Node& n) { return n.where ? n.where->module : std::string(); });
}

std::vector<Value> values_of(Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<Value> values;
  for (const ValueId id : ids) values.push_back(graph.value(id));
  return values;
}

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId id : graph.inputs()) names.push_back(graph.value(id).name());
  return names;
}

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Output& output : graph.outputs()) names.push_back(output.name);
  return names;
}

std::vector<ValueId> output_ids(const Graph& graph) {
  std::vector<ValueId> ids;
  for (const Output& output : graph.outputs()) ids.push_back(output.value);
  return ids;
}

using GraphClass = py::class_<Graph, SharedGraph>;

void bind_building(GraphClass& graph) {
  graph.def(py::init([] { return std::make_shared<Graph>(default_ops()); }))
      .def(
          "input",
          [](const SharedGraph& g, std::string name, const std::string& dtype,
             const py::iterable& dims, const std::string& role) {
            const Type type = Type::tensor(dtype_named(dtype), dims_of(dims));
            const auto known = role_named(role);
            check(known.has_value(), "unknown role '{}'", role);
            return Handle{g->input(std::move(name), type, *known), g};
          },
          py::arg("name"), py::arg("dtype"), py::arg("dims"), py::arg("role") = "user")
      .def("emit", &emit, py::arg("op"), py::arg("inputs"), py::arg("attrs") = py::dict(),
           py::arg("n_outputs") = 1, py::arg("domain") = "",
           py::arg("bodies") = std::vector<std::pair<std::string, SharedBody>>())
      .def("new_body", &new_body)
      .def("constant", [](const SharedGraph& g,
                          const py::array& a) { return Handle{g->constant(tensor_of(a)), g}; })
      .def("scalar",
           [](const SharedGraph& g, double value, const std::string& dtype) {
             return Handle{g->scalar(value, dtype_named(dtype)), g};
           })
      .def("sizes", [](const SharedGraph& g,
                       const py::iterable& d) { return Handle{g->sizes(dims_of(d)), g}; })
      .def("size",
           [](const SharedGraph& g, const py::object& d) { return Handle{g->size(dim_of(d)), g}; })
      .def("output", [](Graph& g, const Handle& value,
                        std::string name) { g.output(value.value, std::move(name)); })
      .def("set_where", &set_where)
      .def("begin_op", &Graph::begin_op)
      .def_property(
          "part_of", [](const Graph& g) { return g.context.part_of; },
          [](Graph& g, int op) { g.context.part_of = op; })
      .def("set_recompute", [](Graph& g, bool on) { g.context.recompute = on; });
}

}  // namespace

void bind_graph(py::module_& m) {
  bind_value(m);
  py::class_<NewBody, SharedBody>(m, "NewBody").def_property_readonly("graph", &graph_of);
  bind_node(m);
  GraphClass graph(m, "Graph");
  bind_building(graph);
  graph.def("clone", [](const Graph& g) { return SharedGraph(g.clone()); })
      .def("text", [](const Graph& g) { return print(g); })
      .def("verify", [](const Graph& g) { verify(g, "verify()"); })
      .def_property_readonly("nodes", &Graph::order, py::return_value_policy::reference_internal)
      .def_property_readonly(
          "inputs", [](const SharedGraph& g) { return handles(g, values_of(*g, g->inputs())); })
      .def_property_readonly(
          "outputs", [](const SharedGraph& g) { return handles(g, values_of(*g, output_ids(*g))); })
      .def_property_readonly("input_names", &input_names)
      .def_property_readonly("output_names", &output_names);
  // For _torch, which has another pybind11: a capsule over a shared_ptr of its own.
  graph.def("capsule", [](const SharedGraph& g) {
    return py::capsule(new SharedGraph(g), [](void* p) { delete static_cast<SharedGraph*>(p); });
  });
  m.def("parse", [](const std::string& text) { return SharedGraph(parse(text, default_ops())); });
}

}  // namespace ort
