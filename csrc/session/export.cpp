// Standard forms: sizes as arithmetic over Shape, training ops by definition or by their ONNX twin.
#include "csrc/session/export.h"

#include <map>

#include "csrc/graph/expand.h"
#include "csrc/graph/expr.h"
#include "csrc/passes/dce.h"

namespace ort {
namespace {

// Sizes of symbols, read from the first input whose shape has them.
class SizeLowering {
 public:
  explicit SizeLowering(Graph& graph) : graph_(graph) {}

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
    for (const ValueId id : graph_.inputs())
      if (const Value size = size_of(id, name)) return size;
    for (const Node* node = graph_.first(); node && node != graph_.context.before;
         node = node->next)
      for (const ValueId id : node->out)  // one that only a run tells
        if (id != kNone)
          if (const Value size = size_of(id, name)) return size;
    fail("size '{}' is the size of no input: the graph cannot be exported", name);
  }

  Value size_of(ValueId id, const std::string& name) {
    const Type& type = graph_.value(id).type();
    for (size_t axis = 0; type.dims && axis < type.dims->size(); ++axis)
      if ((*type.dims)[axis].symbol_name() == name) {
        const int64_t at = static_cast<int64_t>(axis);
        return graph_.emit1("Shape", {graph_.value(id)}, {{"start", at}, {"end", at + 1}});
      }
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
  return node.schema->standard_form()(Call(graph, std::move(in), node.attrs, node.out.size()));
}

// ONNX's ops have ONNX's attributes alone.
void drop_own_attrs(Node& node) {
  for (const OpSchema::AttrSpec& spec : node.schema->attrs())
    if (spec.ours) node.attrs.erase(spec.name);
}

}  // namespace

void standardise(Graph& graph) {
  for (Node* node : graph.order()) {
    drop_own_attrs(*node);
    if (node->schema->is_standard()) continue;
    Insertion here(graph, node, "export");
    const Value twin = standard_form(graph, *node);
    if (!twin) continue;
    graph.replace(node->output(), twin, "export");
    graph.erase(node);
  }
  const size_t expanded =
      expand_all(graph, [](const Node& node) { return !node.schema->is_standard(); });
  remove_dead(graph);
  for (const Node* node : graph.order()) {
    const bool can_go_on =
        node->schema->is_standard() || (expanded > 0 && node->schema->is_sizes());
    check(can_go_on, "[{}] has no standard ONNX form; {}", node->qualified(), node->describe());
  }
  if (expanded > 0) standardise(graph);  // definitions use sizes too
}

}  // namespace ort
