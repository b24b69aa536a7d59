// Ops that a user gives in Python: their entries, and what calls their functions.
#include <pybind11/stl.h>

#include <algorithm>
#include <set>

#include "csrc/bindings/bindings.h"
#include "csrc/graph/schema.h"
#include "csrc/ops/ops.h"
#include "providers/constant.h"

namespace py = pybind11;

namespace ort {
namespace {

// Attributes of a gradient's node, of which no function is told: how many results its op had, and
// the inputs whose gradients are asked for.
constexpr const char* kResults = "ort.results";
constexpr const char* kOf = "ort.of";

// Whoever holds an object last gives it back, be it without the interpreter's lock.
using Shared = std::shared_ptr<const py::object>;
Shared shared(py::object object) {
  return {new py::object(std::move(object)), [](const py::object* held) {
            const py::gil_scoped_acquire lock;
            delete held;
          }};
}

// Calls f with the interpreter's lock. What Python raises is an Error of the node that has it as
// its cause; what ends a program, as Ctrl-C, stays what it is.
template <class F>
auto in_python(const Node& node, const char* what, F&& f) {
  const py::gil_scoped_acquire lock;
  try {
    return f();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const Shared value = shared(error.value());
    if (error.trace()) PyException_SetTraceback(value->ptr(), error.trace().ptr());
    const std::string text = py::str(*value).cast<std::string>(), place = node.describe();
    // What custom_op itself refuses is no user's error.
    const py::handle kind = py::type::handle_of(*value);
    check(!kind.is(error_class()), "[{}] {}; {}", node.qualified(), text, place);
    throw Error(format("[{}] {} raised {}: {}; {}", node.qualified(), what,
                       kind.attr("__name__").cast<std::string>(), text, place),
                std::shared_ptr<const void>(value, value->ptr()));
  }
}

// --- types ---

py::object described_dim(const Dim& dim) {
  return dim.value() ? py::object(py::int_(*dim.value())) : py::cast(dim);
}

// (dtype, sizes or None) of a tensor, [type] of a sequence, {dtype of keys: type} of a map.
py::object described(const Type& type) {
  switch (type.kind) {
    case Type::Kind::tensor: {
      py::object sizes = py::none();
      if (type.dims) {
        py::list all;
        for (const Dim& dim : *type.dims) all.append(described_dim(dim));
        sizes = py::tuple(all);
      }
      return py::make_tuple(std::string(name_of(type.dtype)), sizes);
    }
    case Type::Kind::sequence: {
      py::list items;
      items.append(described(type.held()));
      return items;
    }
    case Type::Kind::map: {
      py::dict values;
      values[py::str(std::string(name_of(type.dtype)))] = described(type.held());
      return values;
    }
    case Type::Kind::optional:
      return described(type.held());
    default:
      return py::none();
  }
}

Type type_of(const py::handle& described, InferContext& c) {
  if (py::isinstance<py::list>(described))
    return Type::sequence(type_of(py::reinterpret_borrow<py::list>(described)[0], c));
  if (py::isinstance<py::dict>(described)) {
    const auto [keys, values] = *py::reinterpret_borrow<py::dict>(described).begin();
    return Type::map(dtype_named(keys.cast<std::string>()), type_of(values, c));
  }
  const auto pair = py::reinterpret_borrow<py::tuple>(described);
  const DType dtype = dtype_named(pair[0].cast<std::string>());
  if (pair[1].is_none()) return Type::tensor(dtype, std::nullopt);
  Dims dims;
  for (const py::handle& size : pair[1]) {
    if (size.is_none())
      dims.push_back(c.fresh());
    else
      dims.push_back(py::isinstance<Dim>(size) ? size.cast<Dim>() : Dim(size.cast<int64_t>()));
  }
  return Type::tensor(dtype, std::move(dims));
}

bool has_place(const Type& type) {
  return type.is_tensor() && type.dtype != DType::string && type.dtype != DType::undefined;
}

// Whether no plan can hold its results: strings and sequences, and sizes that only a run tells.
bool is_late(const Node& node) {
  std::set<std::string> told, said;
  const auto collect = [&](const std::vector<ValueId>& ids, std::set<std::string>& names) {
    return std::all_of(ids.begin(), ids.end(), [&](ValueId id) {
      if (id == kNone) return true;
      const Type& type = node.graph->value(id).type();
      for (const Dim& dim : type.dims.value_or(Dims{})) dim.collect_symbols(names);
      return has_place(type) && (&names == &told || type.dims);
    });
  };
  if (!collect(node.in, told) || !collect(node.out, said)) return true;
  return !std::includes(told.begin(), told.end(), said.begin(), said.end());
}

// --- values in ---

py::object attribute(const Attr& value) {
  return std::visit(
      []<class T>(const T& x) -> py::object {
        if constexpr (std::is_same_v<T, std::string>) {
          PyObject* text =
              PyUnicode_DecodeUTF8(x.data(), static_cast<Py_ssize_t>(x.size()), nullptr);
          if (text) return py::reinterpret_steal<py::str>(text);
          PyErr_Clear();
          return py::bytes(x);
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return array_of(x);
        } else if constexpr (std::is_same_v<T, Dims>) {
          return py::none();
        } else {
          return py::cast(x);
        }
      },
      value);
}

py::dict attributes(const Node& node) {
  py::dict all;
  for (const auto& [name, value] : node.attrs)
    if (name != kResults && name != kOf) all[py::str(name)] = attribute(value);
  return all;
}

// A function may keep what it is given: the memory stays as long, and has its bytes.
Tensor kept(Tensor tensor) {
  tensor.owner = hold(tensor);
  return tensor;
}

Item held(const Item& item) {
  if (const auto* tensor = std::get_if<Tensor>(&item))
    return tensor->owner ? Item(kept(*tensor)) : own_memory(item);
  if (const auto* sequence = std::get_if<Sequence>(&item)) {
    std::vector<Item> items;
    for (const Item& each : sequence->items()) items.push_back(held(each));
    return Sequence(std::move(items));
  }
  if (const auto* map = std::get_if<Map>(&item))
    return Map{std::get<Tensor>(held(map->keys)), std::get<Sequence>(held(map->values))};
  const auto* optional = std::get_if<Optional>(&item);
  return optional && optional->held ? held(*optional->held) : Item{};
}

std::vector<Item> held(const Node& node, std::span<Item> in) {
  std::vector<Item> items;
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor* constant = node.has_input(i) ? constant_of(node.input(i)) : nullptr;
    items.push_back(constant && constant->owner ? Item(kept(*constant)) : held(in[i]));
  }
  return items;
}

// Others read the same memory.
void make_read_only(const py::handle& value) {
  if (py::isinstance<py::array>(value)) {
    value.attr("setflags")(py::arg("write") = false);
  } else if (py::isinstance<py::list>(value)) {
    for (const py::handle& item : value) make_read_only(item);
  } else if (py::isinstance<py::dict>(value)) {
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) make_read_only(item);
  }
}

py::list item_objects(std::span<const Item> items) {
  py::list objects;
  for (const Item& item : items) {
    objects.append(item.present() ? object_of(item) : py::none());
    make_read_only(objects[objects.size() - 1]);
  }
  return objects;
}

// --- values out ---

Symbols sizes_told(const Node& node, std::span<const Item> in) {
  Symbols symbols;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!node.has_input(i) || !in[i].is_tensor()) continue;
    const Dims dims = node.input(i).type().dims.value_or(Dims{});
    for (size_t d = 0; d < std::min(dims.size(), in[i].tensor().sizes.size()); ++d)
      if (const auto name = dims[d].symbol_name()) symbols.emplace(*name, in[i].tensor().sizes[d]);
  }
  return symbols;
}

bool fits(const Tensor& tensor, const Type& type, const Symbols& symbols) {
  if (tensor.dtype != type.dtype) return false;
  if (!type.dims) return true;
  if (type.dims->size() != tensor.sizes.size()) return false;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    std::set<std::string> names;
    (*type.dims)[d].collect_symbols(names);
    const bool known = std::all_of(names.begin(), names.end(),
                                   [&](const auto& name) { return symbols.count(name) > 0; });
    if (known && (*type.dims)[d].evaluate(symbols) != tensor.sizes[d]) return false;
  }
  return true;
}

void check_item(const Item& item, const Type& type, const Symbols& symbols,
                const std::string& place) {
  if (type.kind == Type::Kind::sequence || type.kind == Type::Kind::map) {
    const auto* map = std::get_if<Map>(&item);
    const auto* sequence = map ? &map->values : std::get_if<Sequence>(&item);
    check(sequence && (map != nullptr) == (type.kind == Type::Kind::map),
          "{} is of another kind, expected {}", place, type.text());
    check(!map || map->keys.dtype == type.dtype || sequence->size() == 0,
          "{} has keys of {}, expected {}", place, map ? map->keys.dtype : type.dtype, type.dtype);
    for (size_t i = 0; i < sequence->size(); ++i)
      check_item(sequence->items()[i], type.held(), symbols, format("item {} of {}", i, place));
    return;
  }
  check(item.is_tensor(), "{} is no tensor, expected {}", place, type.text());
  const Tensor& tensor = item.tensor();
  check(fits(tensor, type, symbols), "{} is {} of shape {}, expected {}", place, tensor.dtype,
        tensor.sizes, type.text());
}

// What a function gave as output i, in memory of its own.
Item result_of(const Node& node, size_t i, const py::handle& value, const Symbols& symbols,
               size_t number) {
  const std::string place = format("[{}] result {}", node.qualified(), number);
  const Type& type = node.output(i).type();
  Item item = item_of(value, type, place);
  check_item(item, type, symbols, place);
  return item;
}

std::vector<Item> compute(const py::object& op, const Node& node, std::span<Item> in) {
  const std::vector<Item> given = held(node, in);
  return in_python(node, "its function", [&] {
    const py::tuple results =
        op.attr("compute")(item_objects(given), attributes(node), node.out.size());
    const Symbols symbols = sizes_told(node, given);
    std::vector<Item> items(node.out.size());
    for (size_t i = 0; i < items.size(); ++i)
      if (node.out[i] != kNone) items[i] = result_of(node, i, results[i], symbols, i);
    return items;
  });
}

void infer(const py::object& op, InferContext& c) {
  const Node& node = c.node();
  in_python(node, "the rule of its types", [&] {
    py::list in;
    for (size_t i = 0; i < c.count(); ++i)
      in.append(c.has(i) ? described(c.type(i)) : py::object(py::none()));
    const py::tuple types = op.attr("types_of")(in, attributes(node));
    c.require(types.size() >= node.out.size(), "it has {} outputs, the node {}", types.size(),
              node.out.size());
    for (size_t i = 0; i < node.out.size(); ++i)
      if (c.wants(i)) c.out(i, type_of(types[i], c));
  });
}

// --- gradients ---
// Of a node with m results: their gradients are the first m inputs, then come its inputs.

void infer_gradient(InferContext& c) {
  const auto first = static_cast<size_t>(c.attrs().i(kResults));
  const auto& of = c.attrs().ints(kOf);
  for (size_t k = 0; k < of.size(); ++k) c.out(k, c.type(first + static_cast<size_t>(of[k])));
}

std::vector<Item> compute_gradient(const py::object& op, const Node& node, std::span<Item> in) {
  const std::vector<Item> given = held(node, in);
  const auto first = static_cast<size_t>(node.attrs.i(kResults));
  const auto& of = node.attrs.ints(kOf);
  return in_python(node, "its gradient", [&] {
    const std::span<const Item> all(given);
    const py::tuple results = op.attr("differentiate")(
        item_objects(all.first(first)), item_objects(all.subspan(first)), attributes(node));
    const Symbols symbols = sizes_told(node, given);
    std::vector<Item> items(node.out.size());
    for (size_t k = 0; k < items.size(); ++k) {
      const auto i = static_cast<size_t>(of[k]);
      const Tensor& x = given[first + i].tensor();
      if (results[i].is_none())
        items[k] = Tensor::empty(x.dtype, x.sizes);
      else
        items[k] = result_of(node, k, results[i], symbols, i);
    }
    return items;
  });
}

Outputs gradient_of(const OpSchema& gradient, const Backward& b) {
  const Node& node = b.node();
  std::vector<Value> in;
  for (size_t i = 0; i < node.out.size(); ++i) in.push_back(b.dy(i));
  std::vector<int64_t> of;
  for (size_t i = 0; i < node.in.size(); ++i) {
    in.push_back(node.input(i));
    if (!b.needs(i)) continue;
    check(node.input(i).type().is_tensor(), "[{}] input {} is {}, which has no gradient; {}",
          node.qualified(), i, node.input(i).type().text(), node.describe());
    of.push_back(static_cast<int64_t>(i));
  }
  Attrs attrs = node.attrs;
  attrs.set(kResults, static_cast<int64_t>(node.out.size()));
  attrs.set(kOf, of);
  const auto made = b.graph().emit(gradient, in, std::move(attrs), static_cast<int>(of.size()));
  Outputs dx(node.in.size());
  for (size_t k = 0; k < of.size(); ++k) dx[static_cast<size_t>(of[k])] = made[k];
  return dx;
}

// --- entries ---

std::shared_ptr<OpSchema> entry(const std::string& domain, const std::string& name, int since) {
  auto schema = std::make_shared<OpSchema>(domain, name);
  schema->in_variadic("inputs", kAnything, "*").out_variadic("outputs").foreign().since(since);
  schema->allocates(is_late);
  return schema;
}

// Those that files may have: read and replaced under the interpreter's lock, and never given back,
// as that may end before.
std::shared_ptr<const OpSet>& ops_of_files() {
  static auto* ops =
      new std::shared_ptr<const OpSet>(std::shared_ptr<const OpSet>(), &default_ops());
  return *ops;
}

void add_op(const std::string& domain, const std::string& name, int since, py::object object) {
  for (const OpSchema* schema : default_ops().all())
    check(schema->domain() != domain || onnx_domain(domain), "domain '{}' is the engine's own",
          domain);
  const bool has_gradient = !object.attr("gradient").is_none();
  const Shared op = shared(std::move(object));
  const auto schema = entry(domain, name, since);
  schema->shape([op](InferContext& c) { infer(*op, c); });
  schema->computed_by(
      [op](const Node& node, std::span<Item> in) { return compute(*op, node, in); });
  if (has_gradient) {
    const auto gradient = entry(domain, name + ".gradient", since);
    gradient->shape(infer_gradient);
    gradient->computed_by(
        [op](const Node& node, std::span<Item> in) { return compute_gradient(*op, node, in); });
    schema->gradient([gradient](const Backward& b) { return gradient_of(*gradient, b); });
  }
  ops_of_files() = OpSet::with(*ops_of_files(), schema);
}

}  // namespace

std::shared_ptr<const OpSet> file_ops() {
  return ops_of_files();
}

void bind_custom_op(py::module_& m) {
  const auto floor_divided = [](const Dim& a, const Dim& b) { return floor_div(a, b); };
  const auto remainder = [](const Dim& a, const Dim& b) { return mod(a, b); };
  const auto backwards = [](auto f) { return [f](const Dim& a, const Dim& b) { return f(b, a); }; };
  const auto add = [](const Dim& a, const Dim& b) { return a + b; };
  const auto subtract = [](const Dim& a, const Dim& b) { return a - b; };
  const auto multiply = [](const Dim& a, const Dim& b) { return a * b; };
  py::class_<Dim>(m, "Dim", "A size that has a name, or is computed of such sizes.")
      .def(py::init<int64_t>())
      .def("__add__", add, py::is_operator())
      .def("__radd__", add, py::is_operator())
      .def("__sub__", subtract, py::is_operator())
      .def("__rsub__", backwards(subtract), py::is_operator())
      .def("__mul__", multiply, py::is_operator())
      .def("__rmul__", multiply, py::is_operator())
      .def("__floordiv__", floor_divided, py::is_operator())
      .def("__rfloordiv__", backwards(floor_divided), py::is_operator())
      .def("__mod__", remainder, py::is_operator())
      .def("__rmod__", backwards(remainder), py::is_operator())
      .def(
          "__eq__", [](const Dim& a, const Dim& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Dim& a) { return std::hash<std::string>()(a.text()); })
      .def("__repr__", &Dim::text);
  py::implicitly_convertible<int64_t, Dim>();
  m.def("add_op", &add_op, py::arg("domain"), py::arg("name"), py::arg("since"), py::arg("op"));
}

}  // namespace ort
