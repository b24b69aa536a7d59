// Standard forms: sizes as arithmetic over Shape, training ops by definition or by their ONNX twin.
#include "csrc/session/export.h"

#include <algorithm>
#include <map>
#include <set>

#include "csrc/graph/expand.h"
#include "csrc/graph/expr.h"
#include "csrc/passes/dce.h"

namespace ort {
namespace {

// The axis of an input that has this size.
std::optional<int64_t> axis_of(const Graph& graph, ValueId input, const std::string& name) {
  const std::optional<Dims>& dims = graph.value(input).type().dims;
  for (size_t axis = 0; dims && axis < dims->size(); ++axis)
    if ((*dims)[axis].symbol_name() == name) return static_cast<int64_t>(axis);
  return std::nullopt;
}

// Whether an input of a body is this size itself, int64[1].
bool is_size(const Graph& graph, ValueId input, const std::string& name) {
  const std::optional<Dims>& known = graph.contents(input);
  return known && graph.value(input).rank() == 1 && known->size() == 1 &&
         known->front().symbol_name() == name;
}

bool tells(const Graph& graph, const std::string& name) {
  return std::any_of(graph.inputs().begin(), graph.inputs().end(), [&](ValueId id) {
    return is_size(graph, id, name) || axis_of(graph, id, name).has_value();
  });
}

// Sizes of symbols, read from the first input whose shape has them.
class SizeLowering {
 public:
  explicit SizeLowering(Graph& graph) : graph_(graph) {}

  Value symbol_of(const std::string& name) { return symbol(name); }  // int64[1]
  Value lower(const Dims& dims, bool scalar) {
    std::vector<Value> parts;
    for (const Dim& dim : dims) parts.push_back(vector_of(dim));
    if (parts.empty()) return graph_.ints({});
    const Value vector = parts.size() == 1 ? parts[0] : concat(parts, 0);
    return scalar ? squeeze(vector, {0}) : vector;
  }

 private:
  // int64[1]
  Value vector_of(const Dim& dim) {
    if (dim.value()) return graph_.ints({*dim.value()});
    Value sum;
    for (const auto& [atoms, coefficient] : dim.terms()) {
      Value term;
      for (const Atom* atom : atoms) {
        const Value factor = vector_of(*atom);
        term = term ? term * factor : factor;
      }
      if (!term || coefficient != 1) {
        const Value scale = graph_.ints({coefficient});
        term = term ? term * scale : scale;
      }
      sum = sum ? sum + term : term;
    }
    return sum;
  }

  Value vector_of(const Atom& atom) {
    if (atom.kind == Atom::Kind::symbol) return symbol(atom.name);
    const Value a = vector_of(atom.a), b = vector_of(atom.b);
    switch (atom.kind) {
      case Atom::Kind::floor_div:
        return a / b;
      case Atom::Kind::mod:
        return graph_.emit1("Mod", {a, b});
      case Atom::Kind::min:
        return minimum(a, b);
      case Atom::Kind::broadcast:
        return where(equal(a, graph_.ints({1})), b, a);
      default:
        return maximum(a, b);
    }
  }

  Value symbol(const std::string& name) {
    for (const ValueId id : graph_.inputs()) {
      if (is_size(graph_, id, name)) return graph_.value(id);
      if (const Value size = size_of(id, name)) return size;
    }
    for (const Node* node = graph_.first(); node && node != graph_.context.before;
         node = node->next)
      for (const ValueId id : node->out)  // one that only a run tells
        if (id != kNone)
          if (const Value size = size_of(id, name)) return size;
    fail("size '{}' is the size of no input: the graph cannot be exported", name);
  }

  Value size_of(ValueId id, const std::string& name) {
    if (const auto axis = axis_of(graph_, id, name))
      return graph_.emit1("Shape", {graph_.value(id)}, {{"start", *axis}, {"end", *axis + 1}});
    return {};
  }

  Graph& graph_;
};

// The closest form in ai.onnx that the op's entry names; absent where it names none.
Value standard_form(Graph& graph, const Node& node) {
  if (node.schema->is_sizes())
    return SizeLowering(graph).lower(std::get<Dims>(*node.attrs.find("dims")),
                                     node.attrs.i("scalar") != 0);
  if (!node.schema->standard_form()) return {};
  std::vector<Value> in;
  for (size_t i = 0; i < node.in.size(); ++i) in.push_back(node.input(i));
  return node.schema->standard_form()(OpCall(graph, std::move(in), node.attrs, node.out.size()));
}

// ONNX's ops have ONNX's attributes alone; which inputs are captures the writer must know.
void drop_own_attrs(Node& node) {
  for (const OpSchema::AttrSpec& spec : node.schema->attrs())
    if (spec.ours && spec.name != "captures") node.attrs.erase(spec.name);
}

// The symbols in the sizes of a graph's values and of those in its bodies.
void collect_symbols(const Graph& graph, std::set<std::string>& names) {
  for (size_t id = 0; id < graph.value_count(); ++id)
    for (const Dim& dim : graph.value(static_cast<ValueId>(id)).type().dims.value_or(Dims{}))
      dim.collect_symbols(names);
  for (const Node* node : graph.order()) {
    for (const auto& [name, value] : node->attrs)
      if (const auto* dims = std::get_if<Dims>(&value))
        for (const Dim& dim : *dims) dim.collect_symbols(names);
    for (const auto& [name, body] : node->bodies) collect_symbols(*body, names);
  }
}

// A size of the graph around that no input of a body tells becomes a capture of its node.
Node* capture_sizes(Graph& graph, Node* node) {
  std::set<std::string> used, missing;
  for (const auto& [name, body] : node->bodies) collect_symbols(*body, used);
  for (const std::string& name : used)
    for (const auto& [attribute, body] : node->bodies)
      if (tells(graph, name) && !tells(*body, name)) missing.insert(name);
  if (missing.empty()) return node;
  Insertion here(graph, node, "export");
  std::vector<Value> in;
  for (size_t i = 0; i < node->in.size(); ++i) in.push_back(node->input(i));
  for (const std::string& name : missing) {
    in.push_back(SizeLowering(graph).symbol_of(name));
    for (const auto& [attribute, body] : node->bodies)
      body->input("size " + name, Type::tensor(DType::i64, Dims{1}));
  }
  Attrs attrs = node->attrs;
  attrs.set("captures", attrs.i("captures", 0) + static_cast<int64_t>(missing.size()));
  const auto out =
      graph.emit(node->op, in, attrs, static_cast<int>(node->out.size()), std::move(node->bodies));
  for (size_t i = 0; i < out.size(); ++i)
    if (node->out[i] != kNone) graph.replace(node->output(i), out[i], "export");
  graph.erase(node);
  return out.at(0).producer();
}

// A size that only a run tells may come to 0, which in a file could ask for an axis of the input.
void keep_zeros_in_file(const Graph& graph, Node& node) {
  if (!node.schema->numbered()) return;
  std::set<std::string> names;
  bool deduced = false;  // a -1 goes with no 0
  for (const ValueId id : node.in)
    if (const std::optional<Dims>& known = graph.contents(id))
      for (const Dim& dim : *known) {
        dim.collect_symbols(names);
        deduced = deduced || dim.is(-1);
      }
  if (!deduced && std::any_of(names.begin(), names.end(), Graph::is_fresh))
    node.schema->numbered()(node, node.attrs);
}

}  // namespace

void standardise(Graph& graph) {
  for (Node* node : graph.order()) {
    drop_own_attrs(*node);
    keep_zeros_in_file(graph, *node);
    if (node->owns_bodies())
      for (const auto& [name, body] : capture_sizes(graph, node)->bodies) standardise(*body);
    if (node->schema->stays_in_files()) continue;
    Insertion here(graph, node, "export");
    const Value twin = standard_form(graph, *node);
    if (!twin) continue;
    graph.replace(node->output(), twin, "export");
    graph.erase(node);
  }
  const size_t expanded =
      expand_all(graph, [](const Node& node) { return !node.schema->stays_in_files(); });
  remove_dead(graph);
  for (const Node* node : graph.order()) {
    const bool can_go_on =
        node->schema->stays_in_files() || (expanded > 0 && node->schema->is_sizes());
    check(can_go_on, "[{}] has no standard ONNX form; {}", node->qualified(), node->describe());
  }
  if (expanded > 0) standardise(graph);  // definitions use sizes too
}

}  // namespace ort
