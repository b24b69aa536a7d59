// Reading ONNX: messages field by field, names to values.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <protozero/pbf_message.hpp>
#include <set>

#include "csrc/graph/onnx.h"
#include "csrc/graph/onnx_fields.h"
#include "csrc/graph/onnx_file.h"
#include "csrc/graph/onnx_tensor.h"
#include "csrc/graph/onnx_upgrade.h"
#include "csrc/graph/schema.h"

namespace ort {
namespace {

constexpr int kOldestOpset = 1;
constexpr int kNewestOpset = 28;    // since kOpset ops have only got more dtypes
constexpr int kMaxDepth = 64;       // of types
constexpr int kMaxGraphDepth = 12;  // of graphs in graphs
// A graph inside another one is inferred again with it, so each level counts its nodes thrice.
constexpr size_t kMaxNodes = 1000000, kMaxEdges = 8000000, kLevel = 3;
constexpr size_t kMaxName = 1000;       // characters of a size's name
constexpr int64_t kSmallConstant = 64;  // elements that a body has for itself

using protozero::pbf_message;
using protozero::pbf_reader;

struct RawGraph;

struct RawNode {
  std::string op, domain, name;
  std::vector<std::string> in, out;
  Attrs attrs;
  std::vector<std::pair<std::string, std::shared_ptr<RawGraph>>> graphs;
};

struct RawAttribute {
  std::string name, s;
  int64_t i = 0, type = 0;
  double f = 0;
  std::optional<RawTensor> tensor;
  std::shared_ptr<RawGraph> graph;
  std::optional<Type> tp;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
};

struct RawValue {
  std::string name;
  Type type;
  bool typed = false;
};

struct RawGraph {
  std::vector<RawNode> nodes;
  std::vector<RawValue> inputs, outputs;
  std::vector<RawTensor> initializers;
};

// The names of a graph that is being built. What a body reads of those around it becomes an input.
struct Scope {
  Graph* graph;
  Scope* outer = nullptr;
  std::map<std::string, Value> values{};
  std::vector<Value> captured{};  // of the outer graph, in the order of the inputs
};

class Reader {
 public:
  Reader(const OpSet& ops, TensorReader tensors)
      : ops_(ops), tensors_(std::move(tensors)), graph_(std::make_unique<Graph>(ops)) {}

  std::unique_ptr<Graph> read(std::span<const char> bytes) {
    pbf_message<onnx::Model> model(bytes.data(), bytes.size());
    protozero::data_view graph;
    bool found = false;
    while (model.next()) switch (model.tag()) {
        case onnx::Model::graph:
          graph = model.get_view();
          found = true;
          break;
        case onnx::Model::opset_import:
          read_opset(model.get_message());
          break;
        default:
          model.skip();
      }
    check(found, "no graph in the file: is it an ONNX model?");
    check(opset_ > 0, "the model names no ai.onnx opset");
    check(opset_ >= kOldestOpset && opset_ <= kNewestOpset,
          "the model has opset {}, supported are {} to {}", opset_, kOldestOpset, kNewestOpset);
    read_graph(graph);
    return std::move(graph_);
  }

 private:
  void read_opset(pbf_message<onnx::OperatorSetId> message) {
    std::string domain;
    int64_t version = 0;
    while (message.next()) {
      if (message.tag() == onnx::OperatorSetId::domain)
        domain = read_text(message);
      else if (message.tag() == onnx::OperatorSetId::version)
        version = message.get_int64();
      else
        message.skip();
    }
    if (domain.empty() || domain == "ai.onnx")
      opset_ = static_cast<int>(std::clamp<int64_t>(version, 0, INT32_MAX));
  }

  RawGraph parse_graph(pbf_message<onnx::Graph> message, int depth) {
    check(depth < kMaxGraphDepth, "the model's graphs are nested more than {} deep",
          kMaxGraphDepth);
    RawGraph raw;
    size_t weight = 1;
    for (int i = 0; i < depth; ++i) weight *= kLevel;
    while (message.next()) switch (message.tag()) {
        case onnx::Graph::node:
          raw.nodes.push_back(read_node(message.get_message(), depth));
          edges_ += weight * (raw.nodes.back().in.size() + raw.nodes.back().out.size());
          nodes_ += weight;
          check(nodes_ <= kMaxNodes, "the model has more than {} nodes", kMaxNodes);
          check(edges_ <= kMaxEdges, "the model has more than {} inputs and outputs of nodes",
                kMaxEdges);
          break;
        case onnx::Graph::initializer:
          raw.initializers.push_back(parse_tensor(message.get_message()));
          break;
        case onnx::Graph::input:
          raw.inputs.push_back(read_value(message.get_message()));
          break;
        case onnx::Graph::output:
          raw.outputs.push_back(read_value(message.get_message()));
          break;
        case onnx::Graph::sparse_initializer:
          fail("the model has a sparse initializer, which is not supported");
        default:
          message.skip();
      }
    return raw;
  }

  void read_graph(pbf_message<onnx::Graph> message) {
    RawGraph raw = parse_graph(message, 0);
    Scope scope{graph_.get()};
    for (const RawTensor& tensor : raw.initializers) add_initializer(scope, tensor);
    for (const RawValue& input : raw.inputs)
      for (const Dim& dim : input.type.dims.value_or(Dims{}))
        if (const auto name = dim.symbol_name()) names_.insert(*name);
    std::set<std::string> taken;
    for (RawValue& input : raw.inputs) {
      check(taken.insert(input.name).second, "graph input '{}' is named twice", input.name);
      add_input(scope, input);
    }
    for (RawNode& node : raw.nodes) add_node(scope, node);
    std::set<std::string> given;
    for (const RawValue& output : raw.outputs) {
      check(given.insert(output.name).second, "graph output '{}' is named twice", output.name);
      const auto found = scope.values.find(output.name);
      check(found != scope.values.end(), "graph output '{}' is made by no node", output.name);
      graph_->output(found->second, output.name);
    }
  }

  // The graph of an attribute. `taken`: what it takes of the graph around it whether it reads it or
  // not, so that the branches of one node take the same.
  std::unique_ptr<Graph> build_body(Scope& outer, RawGraph& raw, const std::string& what,
                                    Scope& scope, const std::vector<Value>& taken) {
    auto body = outer.graph->new_body();
    scope.graph = body.get();
    scope.outer = &outer;
    for (const RawTensor& tensor : raw.initializers) add_initializer(scope, tensor);
    for (const RawValue& input : raw.inputs) {
      check(input.typed, "{}: input '{}' has no type", what, input.name);
      Type type = input.type;
      for (size_t i = 0; type.dims && i < type.dims->size(); ++i)
        if (!(*type.dims)[i].value()) (*type.dims)[i] = body->fresh_symbol();
      const bool added =
          scope.values.emplace(input.name, body->input(input.name, std::move(type))).second;
      check(added, "{}: '{}' is made twice", what, input.name);
    }
    for (const Value value : taken) capture(scope, value);
    for (RawNode& node : raw.nodes) add_node(scope, node);
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
    if (!outer) return {};
    const Tensor* constant = constant_of(outer);  // a number stays one
    const bool small = constant && constant->count() <= kSmallConstant;
    const Value inner = small ? scope.graph->constant(*constant) : capture(scope, outer);
    scope.values.emplace(name, inner);
    return inner;
  }

  RawValue read_value(pbf_message<onnx::ValueInfo> message) {
    RawValue value;
    while (message.next()) {
      if (message.tag() == onnx::ValueInfo::name) {
        value.name = read_text(message);
      } else if (message.tag() == onnx::ValueInfo::type) {
        value.type = read_type(message.get_message(), 0);
        value.typed = true;
      } else {
        message.skip();
      }
    }
    return value;
  }

  Type read_type(pbf_message<onnx::TypeField> message, int depth) {
    check(depth < kMaxDepth, "a type is nested too deeply");
    Type type;
    while (message.next()) switch (message.tag()) {
        case onnx::TypeField::tensor_type:
          type = read_tensor_type(message.get_message());
          break;
        case onnx::TypeField::sequence_type:
        case onnx::TypeField::optional_type: {
          const bool sequence = message.tag() == onnx::TypeField::sequence_type;
          Type held;
          pbf_message<onnx::ContainerType> inner = message.get_message();
          while (inner.next())
            if (inner.tag() == onnx::ContainerType::elem_type)
              held = read_type(inner.get_message(), depth + 1);
            else
              inner.skip();
          type = sequence ? Type::sequence(std::move(held)) : Type::optional(std::move(held));
          break;
        }
        default:
          message.skip();
      }
    return type;
  }

  Type read_tensor_type(pbf_message<onnx::TensorType> message) {
    int64_t dtype = 0;
    std::optional<Dims> dims;
    while (message.next()) switch (message.tag()) {
        case onnx::TensorType::elem_type:
          dtype = message.get_int32();
          break;
        case onnx::TensorType::shape:
          dims = read_shape(message.get_message());
          break;
        default:
          message.skip();
      }
    check(known_dtype(dtype), "a value has element type {}, which is not supported", dtype);
    return Type::tensor(static_cast<DType>(dtype), std::move(dims));
  }

  Dims read_shape(pbf_message<onnx::TensorShape> message) {
    Dims dims;
    while (message.next()) {
      if (message.tag() != onnx::TensorShape::dim) {
        message.skip();
        continue;
      }
      pbf_message<onnx::Dimension> dim = message.get_message();
      std::optional<Dim> size;
      while (dim.next()) {
        if (dim.tag() == onnx::Dimension::dim_value)
          size = Dim(dim.get_int64());
        else if (dim.tag() == onnx::Dimension::dim_param)
          size = named_dim(read_text(dim));
        else
          dim.skip();
      }
      check(!size || !size->value() || *size->value() >= 0, "a value has negative size {}",
            size.value_or(0));
      dims.push_back(size ? *size : graph_->fresh_symbol());
    }
    return dims;
  }

  // A dim_param is a name; add_input takes it for an expression where it reads as one. Names that
  // the graph itself gives, as to sizes that only a run tells, are never a file's.
  Dim named_dim(const std::string& text) {
    if (text.empty() || text.size() > kMaxName) return graph_->fresh_symbol();
    if (!Graph::is_fresh(text)) return Dim::symbol(text);
    const auto known = renamed_.find(text);
    return known != renamed_.end() ? known->second
                                   : renamed_.emplace(text, graph_->fresh_symbol()).first->second;
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

  RawNode read_node(pbf_message<onnx::Node> message, int depth) {
    RawNode node;
    std::vector<pbf_reader> attributes;
    while (message.next()) switch (message.tag()) {
        case onnx::Node::input:
          node.in.push_back(read_text(message));
          break;
        case onnx::Node::output:
          node.out.push_back(read_text(message));
          break;
        case onnx::Node::name:
          node.name = read_text(message);
          break;
        case onnx::Node::op_type:
          node.op = read_text(message);
          break;
        case onnx::Node::attribute:
          attributes.push_back(message.get_message());
          break;
        case onnx::Node::domain:
          node.domain = read_text(message);
          break;
        default:
          message.skip();
      }
    if (node.domain == "ai.onnx") node.domain.clear();
    for (const pbf_reader& attribute : attributes) read_attribute(attribute, node, depth);
    return node;
  }

  void read_attribute(pbf_message<onnx::Attribute> message, RawNode& node, int depth) {
    RawAttribute a;
    while (message.next()) switch (message.tag()) {
        case onnx::Attribute::name:
          a.name = read_text(message);
          break;
        case onnx::Attribute::f:
          a.f = message.get_float();
          break;
        case onnx::Attribute::i:
          a.i = message.get_int64();
          break;
        case onnx::Attribute::s:
          a.s = read_text(message);
          break;
        case onnx::Attribute::t:
          a.tensor = parse_tensor(message.get_message());
          break;
        case onnx::Attribute::g:
          a.graph = std::make_shared<RawGraph>(parse_graph(message.get_message(), depth + 1));
          break;
        case onnx::Attribute::tp:
          a.tp = read_type(message.get_message(), 0);
          break;
        case onnx::Attribute::floats:
          read_floats(message, a.floats);
          break;
        case onnx::Attribute::ints:
          read_int64s(message, a.ints);
          break;
        case onnx::Attribute::strings:
          a.strings.push_back(read_text(message));
          break;
        case onnx::Attribute::type:
          a.type = message.get_int32();
          break;
        default:
          message.skip();
      }
    set_attribute(a, node);
  }

  void set_attribute(const RawAttribute& a, RawNode& node) {
    switch (static_cast<onnx::AttributeType>(a.type)) {
      case onnx::AttributeType::f32:
        node.attrs.set(a.name, a.f);
        break;
      case onnx::AttributeType::i64:
        node.attrs.set(a.name, a.i);
        break;
      case onnx::AttributeType::string:
        node.attrs.set(a.name, a.s);
        break;
      case onnx::AttributeType::tensor:
        check(a.tensor.has_value(), "node '{}' ({}): attribute '{}' has no tensor", node.name,
              node.op, a.name);
        node.attrs.set(a.name, tensors_.read(*a.tensor));
        break;
      case onnx::AttributeType::graph:
        check(a.graph != nullptr, "node '{}' ({}): attribute '{}' has no graph", node.name, node.op,
              a.name);
        node.graphs.emplace_back(a.name, a.graph);
        break;
      case onnx::AttributeType::type:
        check(a.tp.has_value(), "node '{}' ({}): attribute '{}' has no type", node.name, node.op,
              a.name);
        node.attrs.set(a.name, without_sizes(*a.tp).text());
        break;
      case onnx::AttributeType::floats:
        node.attrs.set(a.name, a.floats);
        break;
      case onnx::AttributeType::ints:
        node.attrs.set(a.name, a.ints);
        break;
      case onnx::AttributeType::strings:
        node.attrs.set(a.name, a.strings);
        break;
      default:
        fail("node '{}' ({}): attribute '{}' has type {}, which is not supported", node.name,
             node.op, a.name, a.type);
    }
  }

  // A type as an attribute says it: sizes are only known of values.
  static Type without_sizes(Type type) {
    if (type.inner) type.inner = std::make_shared<const Type>(without_sizes(*type.inner));
    for (size_t i = 0; type.dims && i < type.dims->size(); ++i)
      if (!(*type.dims)[i].value()) {
        type.dims.reset();
        break;
      }
    return type;
  }

  static void define(Scope& scope, const std::string& name, Value value) {
    check(scope.values.emplace(name, value).second, "'{}' is made twice", name);
    scope.graph->set_name(value, name);
  }

  void add_initializer(Scope& scope, const RawTensor& tensor) {
    define(scope, tensor.name, scope.graph->constant(tensors_.read(tensor)));
  }

  void add_input(Scope& scope, const RawValue& input) {
    if (scope.values.count(input.name))
      return;  // an initializer with a default that may be overridden: it is not
    check(input.typed, "graph input '{}' has no type", input.name);
    Type type = input.type;
    if (type.dims)
      for (Dim& dim : *type.dims) dim = related_dim(dim);
    scope.values.emplace(input.name, scope.graph->input(input.name, std::move(type)));
  }

  void add_node(Scope& scope, RawNode& node) {
    const std::string op = node.domain.empty() ? node.op : node.domain + "::" + node.op;
    const OpSchema* schema = ops_.find(op);
    const bool known = schema && schema->is_standard();
    check(known, "node '{}': op '{}' of opset {} is not known", node.name, op, opset_);
    std::vector<Value> in;
    for (const std::string& name : node.in) {
      const Value value = name.empty() ? Value{} : find(scope, name);
      check(name.empty() || value, "node '{}' ({}) reads '{}', which nothing before it makes",
            node.name, op, name);
      in.push_back(value);
    }
    Bodies bodies = build_bodies(scope, node, in);
    scope.graph->context.where =
        std::make_shared<Where>(Where{node.name.empty() ? node.op : node.name, "", 0});
    const auto out = emit(scope, node, *schema, in, std::move(bodies));
    for (size_t i = 0; i < out.size(); ++i)
      if (!node.out[i].empty()) define(scope, node.out[i], out[i]);
  }

  // The graphs of a node, which all take the same of the graph around them: its last inputs.
  Bodies build_bodies(Scope& scope, RawNode& node, std::vector<Value>& in) {
    Bodies bodies;
    std::vector<Scope> scopes(node.graphs.size());
    std::vector<Value> taken;
    for (size_t i = 0; i < node.graphs.size(); ++i) {
      const auto& [name, raw] = node.graphs[i];
      const std::string what = format("node '{}' ({}), {}", node.name, node.op, name);
      bodies.emplace_back(name, build_body(scope, *raw, what, scopes[i], taken));
      taken = scopes[i].captured;
    }
    for (Scope& inner : scopes)
      for (const Value value : taken) capture(inner, value);
    if (node.graphs.empty()) return bodies;
    const size_t own = node.graphs[0].second->inputs.size();  // absent ones keep their places
    if (in.size() < own) in.resize(own);
    in.insert(in.end(), taken.begin(), taken.end());
    node.attrs.set("captures", static_cast<int64_t>(taken.size()));
    return bodies;
  }

  // An attribute is of the kind that its default is of.
  static void check_kinds(const RawNode& node, const OpSchema& schema) {
    for (const auto& spec : schema.attrs()) {
      const Attr* given = node.attrs.find(spec.name);
      const bool same = !given || !spec.otherwise || given->index() == spec.otherwise->index();
      check(same, "node '{}' ({}): attribute '{}' has another type than the op says", node.name,
            node.op, spec.name);
    }
  }

  // Every error of the op names the node.
  std::vector<Value> emit(Scope& scope, RawNode& node, const OpSchema& schema,
                          std::vector<Value>& in, Bodies bodies) {
    try {
      upgrade(schema, opset_, *scope.graph, in, node.attrs);
      check_kinds(node, schema);
      return scope.graph->emit(schema.qualified(), in, std::move(node.attrs),
                               static_cast<int>(node.out.size()), std::move(bodies));
    } catch (const std::bad_variant_access&) {
      fail("node '{}' ({}): an attribute has another type than the op says", node.name, node.op);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (node.name.empty() || text.find(node.name) != std::string::npos) throw;
      fail("node '{}': {}", node.name, text);
    }
  }

  const OpSet& ops_;
  TensorReader tensors_;
  std::unique_ptr<Graph> graph_;
  size_t nodes_ = 0, edges_ = 0;  // of all graphs
  std::set<std::string> names_;   // of the inputs' sizes
  std::map<std::string, Dim> renamed_;
  int opset_ = 0;
};

}  // namespace

namespace {

std::unique_ptr<Graph> read_bytes(std::span<const char> bytes, const OpSet& ops,
                                  TensorReader tensors) {
  try {
    return Reader(ops, std::move(tensors)).read(bytes);
  } catch (const protozero::exception& error) {
    fail("the file is no valid protobuf message: {}", error.what());
  }
}

}  // namespace

std::unique_ptr<Graph> read_onnx(std::span<const char> bytes, const OpSet& ops) {
  return read_bytes(bytes, ops, {{"", "", false}, nullptr});
}

std::unique_ptr<Graph> read_onnx_file(const std::string& path, const OpSet& ops, bool map) {
  const OpenFile file(path);
  const size_t size = static_cast<size_t>(file.size());
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  if (map) {
    const auto mapped = file.map();
    data = mapped.get();
    owner = mapped;
  } else {
    const Tensor bytes = Tensor::empty(DType::u8, {file.size()});
    file.read(0, file.size(), bytes.data);
    data = bytes.as<char>();
    owner = bytes.owner;
  }
  try {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const std::string real = std::filesystem::path(file.real_path()).parent_path().string();
    return read_bytes({data, size}, ops, {{folder.empty() ? "." : folder, real, map}, owner});
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace ort
