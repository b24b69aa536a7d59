// Reading ONNX: names to values, functions in the place of their calls.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <protozero/exception.hpp>
#include <set>
#include <utility>

#include "csrc/graph/error_kind.h"
#include "csrc/graph/schema.h"
#include "csrc/onnx/file.h"
#include "csrc/onnx/onnx.h"
#include "csrc/onnx/parse.h"
#include "csrc/onnx/ports.h"
#include "csrc/onnx/tensor.h"
#include "csrc/onnx/upgrade.h"

namespace ort {
namespace {

constexpr int kMostCalls = 50;          // of functions in functions
constexpr int64_t kSmallConstant = 64;  // elements that a body has for itself

// The names of a graph that is being built. What a body reads of those around it becomes an input;
// a graph that is inlined has names of its own for nodes of the graph around it.
struct Scope {
  Graph* graph;
  Scope* outer = nullptr;
  std::map<std::string, Value> values{};
  std::vector<Value> captured{};  // of the outer graph, in the order of the inputs
};

// Every error of f names the node.
auto naming_raw(const RawNode& node, const auto& f) {
  try {
    return f();
  } catch (const std::bad_variant_access&) {
    fail("{}: an attribute has another type than the op says", node.text());
  } catch (const Error& error) {
    const std::string text = error.what();
    if (node.name.empty() || text.find(node.name) != std::string::npos) throw;
    tell_as(error, format("node '{}': {}", node.name, text));
  }
}

class Reader {
 public:
  Reader(const OpSet& ops, TensorReader tensors, const ReadAs& as)
      : ops_(ops), tensors_(std::move(tensors)), as_(as), graph_(std::make_unique<Graph>(ops)) {}

  std::unique_ptr<Graph> read(std::span<const char> bytes, ModelHead* head) {
    RawModel model = parse_model(bytes, tensors_, *graph_, as_);
    opsets_ = std::move(model.opsets);
    budget_ = model.spent;
    functions_ = std::move(model.functions);
    if (head) *head = std::move(model.head);
    read_graph(model.graph, head);
    return std::move(graph_);
  }

 private:
  // A call of a function: its attributes are values that the nodes inside may take.
  struct Frame {
    const RawFunction* function;
    Attrs given;
    const Frame* caller;
    int depth;
    // The call's attribute, or the function's own; null where neither gives it.
    const Attr* find(const std::string& name) const {
      const Attr* value = given.find(name);
      return value ? value : function->defaults.attrs.find(name);
    }
  };

  void read_graph(const RawGraph& raw, ModelHead* head) {
    Scope scope{graph_.get()};
    add_own_initializers(scope, raw);
    for (const RawValue& input : raw.inputs)
      for (const Dim& dim : input.type.dims.value_or(Dims{}))
        if (const auto name = dim.symbol_name()) names_.insert(*name);
    std::set<std::string> taken;
    for (const RawValue& input : raw.inputs) {
      check(taken.insert(input.name).second, "graph input '{}' is named twice", input.name);
      if (head) describe_input(raw, input, *head);
      add_input(scope, input);
    }
    for (const RawNode& node : raw.nodes) add_node(scope, node);
    std::set<std::string> given;
    for (const RawValue& output : raw.outputs) {
      check(given.insert(output.name).second, "graph output '{}' is named twice", output.name);
      const auto found = scope.values.find(output.name);
      check(found != scope.values.end() && found->second, "graph output '{}' is made by no node",
            output.name);
      check_declared(output, found->second.type());
      if (head) head->outputs.push_back({output.name, output_type(output, found->second.type())});
      graph_->output(found->second, output.name);
    }
  }

  // The graph of an attribute. `types`: of its inputs, where the file leaves them out. `taken`:
  // what it takes of the graph around it whether it reads it or not, so that the branches of one
  // node take the same.
  std::unique_ptr<Graph> build_body(Scope& outer, const RawGraph& raw, const std::string& what,
                                    Scope& scope, const std::vector<Type>& types,
                                    const std::vector<Value>& taken) {
    auto body = outer.graph->new_body();
    scope.graph = body.get();
    scope.outer = &outer;
    add_initializers(scope, raw);
    for (size_t i = 0; i < raw.inputs.size(); ++i) {
      const RawValue& input = raw.inputs[i];
      check(input.typed || i < types.size(), "{}: input '{}' has no type", what, input.name);
      Type type = input.typed ? input.type : types[i];
      for (size_t d = 0; type.dims && d < type.dims->size(); ++d)
        if (!(*type.dims)[d].value()) (*type.dims)[d] = body->fresh_symbol();
      const bool added =
          scope.values.emplace(input.name, body->input(input.name, std::move(type))).second;
      check(added, "{}: '{}' is made twice", what, input.name);
    }
    for (const Value value : taken) capture(scope, value);
    for (const RawNode& node : raw.nodes) add_node(scope, node);
    for (const RawValue& output : raw.outputs) {
      const Value value = find(scope, output.name);
      check(static_cast<bool>(value), "{}: output '{}' is made by no node", what, output.name);
      body->output(value, output.name);
    }
    return body;
  }

  static Value capture(Scope& scope, Value outer) {
    for (size_t i = 0; i < scope.captured.size(); ++i)
      if (scope.captured[i] == outer)
        return scope.graph->value(
            scope.graph->inputs()[scope.graph->inputs().size() - scope.captured.size() + i]);
    const Value inner = scope.graph->input(outer.name(), outer.type());
    scope.graph->set_contents(inner, outer.graph->contents(outer.id));
    scope.captured.push_back(outer);
    return inner;
  }

  // The value of a name, which may be one of a graph around; absent where there is none.
  static Value find(Scope& scope, const std::string& name) {
    const auto found = scope.values.find(name);
    if (found != scope.values.end()) return found->second;
    if (!scope.outer) return {};
    const Value outer = find(*scope.outer, name);
    if (!outer || scope.outer->graph == scope.graph) return outer;
    const Tensor* constant = constant_of(outer);  // a number stays one
    const bool small = constant && constant->count() <= kSmallConstant;
    const Value inner = small ? scope.graph->constant(*constant) : capture(scope, outer);
    scope.values.emplace(name, inner);
    return inner;
  }

  // The name as an expression of other inputs' names, where it is one.
  Dim related_dim(const Dim& dim) const {
    const auto name = dim.symbol_name();
    if (!name || names_.count(*name) == 0) return dim;
    try {
      const Dim read = Dim::parse(*name);
      std::set<std::string> symbols;
      read.collect_symbols(symbols);
      const bool known =
          std::includes(names_.begin(), names_.end(), symbols.begin(), symbols.end());
      return known && !read.value() ? read : dim;
    } catch (const Error&) {
      return dim;
    }
  }

  static void define(Scope& scope, const std::string& name, Value value) {
    check(scope.values.emplace(name, value).second, "'{}' is made twice", name);
    if (value.producer()) scope.graph->set_name(value, name);  // an input has its own
  }

  void add_initializers(Scope& scope, const RawGraph& raw) {
    for (const RawTensor& tensor : raw.initializers)
      define(scope, tensor.name, scope.graph->constant(tensors_.read(tensor)));
    add_sparse_initializers(scope, raw);
  }

  void add_sparse_initializers(Scope& scope, const RawGraph& raw) {
    for (const RawSparseTensor& tensor : raw.sparse_initializers)
      define(scope, tensor.values.name, scope.graph->constant(tensors_.read(tensor)));
  }

  // Those of the model itself, which may be given otherwise or left open.
  void add_own_initializers(Scope& scope, const RawGraph& raw) {
    check_external(raw);
    for (const RawTensor& tensor : raw.initializers)
      if (const auto given = as_.initializers.find(tensor.name); given != as_.initializers.end())
        define(scope, tensor.name, scope.graph->constant(as_given(tensor, given->second)));
      else if (!as_.open.count(tensor.name))
        define(scope, tensor.name, scope.graph->constant(tensors_.read(tensor)));
    add_sparse_initializers(scope, raw);
  }

  void check_external(const RawGraph& raw) const {
    for (const std::string& name : as_.external) {
      const auto found = std::find_if(raw.initializers.begin(), raw.initializers.end(),
                                      [&](const RawTensor& tensor) { return tensor.name == name; });
      check(found != raw.initializers.end(), "initializer '{}' is given, and the model has none",
            name);
      check(found->external, "initializer '{}' is given, and the model has it in its own file",
            name);
    }
  }

  void add_input(Scope& scope, const RawValue& input) {
    if (scope.values.count(input.name)) return;  // it has an initializer, which stays
    check(input.typed, "graph input '{}' has no type", input.name);
    Type type = input.type;
    if (type.dims)
      for (Dim& dim : *type.dims) dim = related_dim(dim);
    scope.values.emplace(input.name, scope.graph->input(input.name, std::move(type)));
  }

  // Where the name was given an absent value, as a function's inputs may be, it is absent.
  static bool is_absent(const Scope& scope, const std::string& name) {
    if (name.empty()) return true;
    const auto found = scope.values.find(name);
    if (found != scope.values.end()) return !found->second;
    return scope.outer && is_absent(*scope.outer, name);
  }

  void add_node(Scope& scope, const RawNode& node) {
    const std::string op = node.domain.empty() ? node.op : node.domain + "::" + node.op;
    std::vector<Value> in;
    for (const std::string& name : node.in) {
      const Value value = is_absent(scope, name) ? Value{} : find(scope, name);
      check_as(ErrorKind::argument, value || is_absent(scope, name),
               "node '{}' ({}) reads '{}', which nothing before it makes", node.name, op, name);
      in.push_back(value);
    }
    const auto function = functions_.find(function_key(node.domain, node.op, node.overload));
    const auto out = function != functions_.end() ? call(scope, node, function->second, in)
                                                  : emit(scope, node, op, std::move(in));
    for (size_t i = 0; i < out.size(); ++i)
      if (!node.out[i].empty()) define(scope, node.out[i], out[i]);
  }

  // The function's nodes in place of the call.
  std::vector<Value> call(Scope& scope, const RawNode& node, const RawFunction& function,
                          const std::vector<Value>& in) {
    const Frame frame{&function, attrs_of(node), frame_, frame_ ? frame_->depth + 1 : 1};
    for (const Frame* around = frame_; around; around = around->caller)
      check(around->function != &function, "{}: the function calls itself", node.text());
    check(frame.depth <= kMostCalls, "{}: functions call each other more than {} deep", node.text(),
          kMostCalls);
    check(node.graphs.empty(), "{}: a function with a graph as attribute is not supported",
          node.text());
    check(in.size() <= function.in.size() && node.out.size() <= function.out.size(),
          "{}: the function has {} inputs and {} outputs, the node {} and {}", node.text(),
          function.in.size(), function.out.size(), in.size(), node.out.size());
    Scope inner{scope.graph};
    for (size_t i = 0; i < function.in.size(); ++i)
      inner.values.emplace(function.in[i], i < in.size() ? in[i] : Value{});
    if (!frame_) budget_.expect(weight_of(function, 1));
    const Frame* around = std::exchange(frame_, &frame);
    Opsets within = function.opsets;
    within.insert(opsets_.begin(), opsets_.end());
    const Opsets without = std::exchange(opsets_, std::move(within));
    for (const RawNode& each : function.nodes) {
      budget_.count(each, depth_of(scope));
      add_node(inner, each);
    }
    frame_ = around;
    opsets_ = without;
    std::vector<Value> out;
    for (size_t i = 0; i < node.out.size(); ++i) {
      const auto found = inner.values.find(function.out[i]);
      check(node.out[i].empty() || (found != inner.values.end() && found->second),
            "{}: output '{}' of the function is made by no node", node.text(), function.out[i]);
      out.push_back(found == inner.values.end() ? Value{} : found->second);
    }
    return out;
  }

  // How many nodes stand in the place of a call: told before they are made, as a small file can ask
  // for very many. What calls itself, or too deep, is found when it is called.
  size_t weight_of(const RawFunction& function, int depth) {
    const auto [found, added] = weights_.emplace(&function, 0);
    if (!added || depth > kMostCalls) return found->second;
    const size_t weight = weight_of(function.nodes, depth);
    return weights_[&function] = weight;
  }
  size_t weight_of(const std::vector<RawNode>& nodes, int depth) {
    size_t weight = 0;
    for (const RawNode& node : nodes) {
      const auto called = functions_.find(function_key(node.domain, node.op, node.overload));
      weight += 1 + (called == functions_.end() ? 0 : weight_of(called->second, depth + 1));
      for (const auto& [name, graph] : node.graphs) weight += weight_of(graph->nodes, depth);
      weight = std::min(weight, kMaxNodes + 1);
    }
    return weight;
  }

  static int depth_of(const Scope& scope) { return scope.outer ? depth_of(*scope.outer) + 1 : 0; }

  // The node's attributes, with those that the function around it was called with.
  Attrs attrs_of(const RawNode& node) const {
    Attrs attrs = node.attrs;
    for (const auto& [name, ref] : node.refs) {
      check(frame_ != nullptr, "{}: attribute '{}' is that of a function, and around it is none",
            node.text(), name);
      const auto& known = frame_->function->attrs;
      const bool declared = std::find(known.begin(), known.end(), ref) != known.end() ||
                            frame_->function->defaults.attrs.has(ref);
      check(declared, "{}: attribute '{}' is '{}' of the function, which has none of that name",
            node.text(), name, ref);
      if (const Attr* value = frame_->find(ref)) attrs.set(name, *value);
    }
    return attrs;
  }

  // The graphs of a node, which all take the same of the graph around them: its last inputs.
  Bodies build_bodies(Scope& scope, const RawNode& node, const OpSchema* schema,
                      std::vector<Value>& in, Attrs& attrs) {
    Bodies bodies;
    std::vector<Scope> scopes(node.graphs.size());
    std::vector<Type> types;
    if (schema && schema->body_inputs() && opset_of(node) >= schema->since_opset())
      types = schema->body_inputs()(in, attrs);
    std::vector<Value> taken;
    for (size_t i = 0; i < node.graphs.size(); ++i) {
      const auto& [name, raw] = node.graphs[i];
      const std::string what = format("{}, {}", node.text(), name);
      bodies.emplace_back(name, build_body(scope, *raw, what, scopes[i], types, taken));
      taken = scopes[i].captured;
    }
    for (Scope& inner : scopes)
      for (const Value value : taken) capture(inner, value);
    if (node.graphs.empty()) return bodies;
    const size_t own = node.graphs[0].second->inputs.size();  // absent ones keep their places
    if (in.size() < own) in.resize(own);
    in.insert(in.end(), taken.begin(), taken.end());
    attrs.set("captures", static_cast<int64_t>(taken.size()));
    return bodies;
  }

  // The values that attributes of the node name, as its last inputs.
  void add_named(Scope& scope, const RawNode& node, const OpSchema* schema, std::vector<Value>& in,
                 Attrs& attrs) {
    if (!schema || schema->naming_values().empty()) return;
    const size_t own = in.size();
    for (const std::string& attr : schema->naming_values()) {
      const auto* one = std::get_if<std::string>(attrs.find(attr));
      for (const std::string& name : one ? std::vector{*one} : attrs.list<std::string>(attr)) {
        in.push_back(is_absent(scope, name) ? Value{} : find(scope, name));
        check(bool(in.back()), "{}: attribute '{}' names '{}', which nothing before it makes",
              node.text(), attr, name);
      }
    }
    attrs.set("captures", static_cast<int64_t>(in.size() - own));
  }

  int opset_of(const RawNode& node) const {
    const auto found = opsets_.find(node.domain);
    check(found != opsets_.end(), "{}: the model imports no opset of domain '{}'", node.text(),
          node.domain.empty() ? "ai.onnx" : node.domain);
    return found->second;
  }

  void check_known(const RawNode& node, const std::string& op, bool known) const {
    if (known) return;
    const auto opset = opsets_.find(node.domain);
    const std::string version = opset == opsets_.end() ? "" : format(" of opset {}", opset->second);
    const std::string text =
        format("node '{}': op '{}'{} is not known{}", node.name, op, version,
               ops_.is_given(op) ? ", a later one is"
                                 : "; ortmodule.custom_op can give it a Python function");
    check_as(ErrorKind::graph, !node.domain.empty(), "{}", text);
    fail("{}", text);
  }

  // Null where no file may have it.
  const OpSchema* schema_of(const RawNode& node, const std::string& op) const {
    if (ops_.is_given(op)) return ops_.find_given(op, opset_of(node));
    check(
        node.domain != "com.microsoft.nchwc",
        "{}: an op of domain 'com.microsoft.nchwc' runs on the machine that wrote the file alone: "
        "save it with graph_optimization_level ORT_ENABLE_EXTENDED",
        node.text());
    return onnx_domain(node.domain) ? ops_.find(op) : nullptr;
  }

  // What a graph of a node makes of a value: its nodes, in the place of the node.
  Value inlined(Scope& scope, const RawNode& node, const std::string& name, const RawGraph& raw,
                Value x) {
    check(raw.inputs.size() == 1 && raw.outputs.size() == 1,
          "{}: graph '{}' has {} inputs and {} outputs, expected one of each", node.text(), name,
          raw.inputs.size(), raw.outputs.size());
    Scope inner{scope.graph, &scope};
    define(inner, raw.inputs[0].name, x);
    add_initializers(inner, raw);
    const auto where = scope.graph->context.where;
    for (const RawNode& each : raw.nodes) add_node(inner, each);
    scope.graph->context.where = where;
    const Value y = find(inner, raw.outputs[0].name);
    check(static_cast<bool>(y), "{}: output '{}' of graph '{}' is made by no node", node.text(),
          raw.outputs[0].name, name);
    const auto &a = x.type().dims, &b = y.type().dims;
    check(types_agree(x.type(), y.type()) && (!a || !b || std::ranges::equal(*a, *b, may_be_equal)),
          "{}: graph '{}' makes {} of {}, expected the same type", node.text(), name,
          y.type().text(), x.type().text());
    return y;
  }

  // The parts of a node whose definition applies its graphs.
  std::vector<Value> emit_parts(Scope& scope, const RawNode& node, const OpSchema& schema,
                                std::vector<Value> in) {
    for (const auto& [name, raw] : node.graphs)
      check(std::count(schema.applied().begin(), schema.applied().end(), name) > 0,
            "{}: it has no graph '{}'", node.text(), name);
    check(in.size() == schema.inputs().size() && node.out.size() <= schema.outputs().size(),
          "{}: it has {} inputs and {} outputs, expected {} and up to {}", node.text(), in.size(),
          node.out.size(), schema.inputs().size(), schema.outputs().size());
    for (size_t i = 0; i < in.size(); ++i) {
      const OpSchema::Port& port = schema.inputs()[i];
      check(in[i] && (port.types & bit(in[i].type())) && in[i].dtype() == in[0].dtype(),
            "{}: input '{}' is {}, which it does not take", node.text(), port.name,
            in[i] ? in[i].type().text() : "missing");
      check(in[i].type().dims.has_value(), "{}: input '{}' is {}, expected a known rank",
            node.text(), port.name, in[i].type().text());
    }
    const auto apply = [&](std::string_view graph, Value x) {
      for (const auto& [name, raw] : node.graphs)
        if (name == graph) return inlined(scope, node, name, *raw, x);
      return x;
    };
    const Attrs attrs = attrs_of(node);
    check_kinds(node, attrs, schema);
    stand_at(scope, node);
    return naming_raw(node, [&] {
      return schema.definition()(
          OpCall(*scope.graph, std::move(in), attrs, node.out.size(), apply));
    });
  }

  // What is emitted next is this node's.
  static void stand_at(Scope& scope, const RawNode& node) {
    scope.graph->context.where =
        std::make_shared<Where>(Where{node.name.empty() ? node.op : node.name, "", 0});
  }

  // An attribute is of the kind that its default is of.
  static void check_kinds(const RawNode& node, const Attrs& attrs, const OpSchema& schema) {
    for (const auto& spec : schema.attrs()) {
      const Attr* given = attrs.find(spec.name);
      const bool same = !given || !spec.otherwise || given->index() == spec.otherwise->index();
      check(same, "{}: attribute '{}' has another type than the op says", node.text(), spec.name);
    }
  }

  // A node that a user's function computes.
  std::vector<Value> emit_given(Scope& scope, const RawNode& node, const OpSchema& schema,
                                const std::vector<Value>& in) {
    check(node.graphs.empty(), "{}: a function is given no graphs, it has '{}'", node.text(),
          node.graphs.empty() ? "" : node.graphs[0].first);
    stand_at(scope, node);
    return naming_raw(node, [&] {
      return scope.graph->emit(schema, in, attrs_of(node), static_cast<int>(node.out.size()));
    });
  }

  std::vector<Value> emit(Scope& scope, const RawNode& node, const std::string& op,
                          std::vector<Value> in) {
    const OpSchema* schema = schema_of(node, op);
    check_known(node, op, schema != nullptr || has_upgrade(op));
    if (schema && !schema->applied().empty()) return emit_parts(scope, node, *schema, in);
    if (schema && schema->function()) return emit_given(scope, node, *schema, in);
    OldNode old{opset_of(node), op, scope.graph, {}, attrs_of(node), {}, node.out.size(), {}};
    old.bodies = build_bodies(scope, node, schema, in, old.attrs);
    stand_at(scope, node);
    return naming_raw(node, [&] {
      add_named(scope, node, schema, in, old.attrs);
      old.in = std::move(in);
      upgrade(old, ops_);
      schema = &ops_.get(old.op);
      check_kinds(node, old.attrs, *schema);
      const auto& results = schema->outputs();
      check(old.outputs <= results.size() || (!results.empty() && results.back().variadic),
            "{}: it has {} outputs, the op {}", node.text(), old.outputs, results.size());
      auto out = scope.graph->emit(schema->qualified(), old.in, std::move(old.attrs),
                                   static_cast<int>(old.outputs), std::move(old.bodies));
      if (old.finish) old.finish(out);
      return out;
    });
  }

  const OpSet& ops_;
  TensorReader tensors_;
  const ReadAs& as_;
  std::unique_ptr<Graph> graph_;
  std::set<std::string> names_;  // of the inputs' sizes
  std::map<std::string, RawFunction> functions_;
  std::map<const RawFunction*, size_t> weights_;
  const Frame* frame_ = nullptr;  // the innermost call; null: in the model's own graph
  Budget budget_;
  Opsets opsets_;  // of the model or of the function that is called
};

}  // namespace

namespace {

std::unique_ptr<Graph> read_bytes(std::span<const char> bytes, const OpSet& ops,
                                  TensorReader tensors, const ReadAs& as, ModelHead* head) {
  try {
    return Reader(ops, std::move(tensors), as).read(bytes, head);
  } catch (const protozero::exception& error) {
    throw KindedError(ErrorKind::protobuf,
                      format("the file is no valid protobuf message: {}", error.what()));
  }
}

}  // namespace

std::unique_ptr<Graph> read_onnx(std::span<const char> bytes, const OpSet& ops, const ReadAs& as,
                                 ModelHead* head) {
  return read_bytes(bytes, ops, {{"", "", false, as.files, as.allocate}, nullptr}, as, head);
}

std::unique_ptr<Graph> read_onnx_file(const std::string& path, const OpSet& ops, bool map,
                                      const ReadAs& as, ModelHead* head) {
  const OpenFile file(path);
  const size_t size = static_cast<size_t>(file.size());
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::string real = std::filesystem::path(file.real_path()).parent_path().string();
  ExternalFiles external{folder.empty() ? "." : folder, real, map, as.files, as.allocate};
  try {
    if (map) {
      const auto mapped = file.map();
      return read_bytes({mapped.get(), size}, ops, {std::move(external), mapped}, as, head);
    }
    // Tensors are copied out: one that lay aligned would keep the whole file beside the others.
    auto bytes = std::make_unique<char[]>(size);
    file.read(0, file.size(), bytes.get());
    return read_bytes({bytes.get(), size}, ops, {std::move(external), nullptr}, as, head);
  } catch (const Error& error) {
    tell_as(error, format("{}: {}", path, error.what()));
  }
}

}  // namespace ort
