// Parsing messages field by field.
#include "csrc/onnx/parse.h"

#include <algorithm>
#include <protozero/pbf_message.hpp>

#include "csrc/graph/error_kind.h"
#include "csrc/onnx/fields.h"
#include "csrc/onnx/upgrade.h"

namespace ort {
namespace {

constexpr int kMaxDepth = 64;  // of types
constexpr size_t kMaxEdges = 8000000, kLevel = 3;
constexpr size_t kMaxName = 1000;  // characters of a size's name
constexpr int64_t kFirstIrWithOpsets = 3;

using protozero::pbf_message;
using protozero::pbf_reader;

struct RawAttribute {
  std::string name, s, ref;
  int64_t i = 0, type = 0;
  double f = 0;
  std::optional<RawTensor> tensor;
  std::optional<RawSparseTensor> sparse;
  std::shared_ptr<RawGraph> graph;
  std::optional<Type> tp;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
};

class Parser {
 public:
  Parser(TensorReader& tensors, Graph& graph, const ReadAs& as)
      : tensors_(tensors), graph_(graph), as_(as) {}

  RawModel parse(std::span<const char> bytes) {
    pbf_message<onnx::Model> model(bytes.data(), bytes.size());
    RawModel raw;
    std::vector<protozero::data_view> graphs, functions;
    ModelHead& head = raw.head;
    while (model.next()) switch (model.tag()) {
        case onnx::Model::ir_version:
          head.ir_version = model.get_int64();
          break;
        case onnx::Model::producer_name:
          head.producer = read_text(model);
          break;
        case onnx::Model::domain:
          head.domain = read_text(model);
          break;
        case onnx::Model::model_version:
          head.version = model.get_int64();
          break;
        case onnx::Model::doc_string:
          head.description = read_text(model);
          break;
        case onnx::Model::metadata_props:
          read_entry(model.get_message(), head.metadata);
          break;
        case onnx::Model::graph:
          graphs.push_back(model.get_view());
          break;
        case onnx::Model::functions:
          functions.push_back(model.get_view());
          break;
        case onnx::Model::opset_import:
          read_opset(model.get_message(), raw.opsets);
          break;
        default:
          model.skip();
      }
    check_as(ErrorKind::argument, !graphs.empty(), "no graph in the file: is it an ONNX model?");
    if (raw.opsets.empty() && head.ir_version < kFirstIrWithOpsets) raw.opsets.emplace("", 1);
    check(!raw.opsets.empty(), "the model imports no opset");
    raw.graph = parse_graph(pbf_message<onnx::Graph>(graphs.back()), 0);
    for (const protozero::data_view& view : functions) {
      RawFunction function = parse_function(pbf_message<onnx::Function>(view));
      std::string key = function_key(function.domain, function.name, function.overload);
      const std::string name = function.domain + "::" + function.name;
      check(raw.functions.emplace(std::move(key), std::move(function)).second,
            "the model has two functions '{}'", name);
    }
    head.graph_name = raw.graph.name;
    head.graph_description = raw.graph.description;
    raw.spent = budget_;
    return raw;
  }

 private:
  static void read_entry(pbf_message<onnx::StringStringEntry> message,
                         std::map<std::string, std::string>& entries) {
    std::string key, value;
    while (message.next())
      if (message.tag() == onnx::StringStringEntry::key)
        key = read_text(message);
      else if (message.tag() == onnx::StringStringEntry::value)
        value = read_text(message);
      else
        message.skip();
    entries[key] = std::move(value);
  }

  // `opsets`: those that were read before, of one model or function.
  static void read_opset(pbf_message<onnx::OperatorSetId> message, Opsets& opsets) {
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
    if (domain == "ai.onnx") domain.clear();
    if (const OnnxDomain* known = onnx_domain(domain))
      check(version >= known->oldest && version <= known->newest,
            "the model has opset {} of domain '{}', supported are {} to {}", version,
            domain.empty() ? "ai.onnx" : domain, known->oldest, known->newest);
    const int opset = static_cast<int>(std::clamp<int64_t>(version, 0, INT32_MAX));
    const auto before = opsets.emplace(domain, opset).first;
    check(before->second == opset, "the model imports opset {} and opset {} of domain '{}'",
          before->second, version, domain);
  }

  RawFunction parse_function(pbf_message<onnx::Function> message) {
    RawFunction raw;
    while (message.next()) switch (message.tag()) {
        case onnx::Function::name:
          raw.name = read_text(message);
          break;
        case onnx::Function::domain:
          raw.domain = read_text(message);
          break;
        case onnx::Function::overload:
          raw.overload = read_text(message);
          break;
        case onnx::Function::input:
          raw.in.push_back(read_text(message));
          break;
        case onnx::Function::output:
          raw.out.push_back(read_text(message));
          break;
        case onnx::Function::attribute:
          raw.attrs.push_back(read_text(message));
          break;
        case onnx::Function::attribute_proto:
          read_attribute(message.get_message(), raw.defaults, 0);
          break;
        case onnx::Function::node:
          raw.nodes.push_back(read_node(message.get_message(), 0));
          budget_.count(raw.nodes.back(), 0);
          break;
        case onnx::Function::opset_import:
          read_opset(message.get_message(), raw.opsets);
          break;
        default:
          message.skip();
      }
    if (raw.domain == "ai.onnx") raw.domain.clear();
    return raw;
  }

  RawGraph parse_graph(pbf_message<onnx::Graph> message, int depth) {
    check(depth < kMaxGraphDepth, "the model's graphs are nested more than {} deep",
          kMaxGraphDepth);
    RawGraph raw;
    while (message.next()) switch (message.tag()) {
        case onnx::Graph::node:
          raw.nodes.push_back(read_node(message.get_message(), depth));
          budget_.count(raw.nodes.back(), depth);
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
        case onnx::Graph::name:
          raw.name = read_text(message);
          break;
        case onnx::Graph::doc_string:
          raw.description = read_text(message);
          break;
        case onnx::Graph::sparse_initializer:
          raw.sparse_initializers.push_back(parse_sparse_tensor(message.get_message()));
          break;
        default:
          message.skip();
      }
    return raw;
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
        case onnx::TypeField::map_type:
          type = read_map_type(message.get_message(), depth);
          break;
        default:
          message.skip();
      }
    return type;
  }

  Type read_map_type(pbf_message<onnx::MapType> message, int depth) {
    int64_t keys = 0;
    Type values;
    while (message.next()) switch (message.tag()) {
        case onnx::MapType::key_type:
          keys = message.get_int32();
          break;
        case onnx::MapType::value_type:
          values = read_type(message.get_message(), depth + 1);
          break;
        default:
          message.skip();
      }
    const auto dtype = known_dtype(keys) ? static_cast<DType>(keys) : DType::undefined;
    check(dtype == DType::i64 || dtype == DType::string,
          "a map has keys of type {}, expected int64 or string",
          dtype == DType::undefined ? format("{}", keys) : std::string(name_of(dtype)));
    return Type::map(dtype, std::move(values));
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
      std::string denotation;
      while (dim.next()) {
        if (dim.tag() == onnx::Dimension::dim_value)
          size = Dim(dim.get_int64());
        else if (dim.tag() == onnx::Dimension::dim_param)
          size = named_dim(read_text(dim));
        else if (dim.tag() == onnx::Dimension::denotation)
          denotation = read_text(dim);
        else
          dim.skip();
      }
      const auto given = as_.denoted.find(denotation);
      if (given != as_.denoted.end() && !(size && size->value())) size = Dim(given->second);
      const int64_t number =
          size ? size->value().value_or(0) : -1;  // exporters leave it open so, too
      check(number >= -1, "a value has negative size {}", number);
      const bool known = number >= 0;
      dims.push_back(known ? *size : graph_.fresh_symbol());
    }
    return dims;
  }

  // A dim_param is a name; add_input takes it for an expression where it reads as one. Names that
  // the graph itself gives, as to sizes that only a run tells, are never a file's.
  Dim named_dim(const std::string& text) {
    if (const auto given = as_.sizes.find(text); given != as_.sizes.end()) return given->second;
    if (text.empty() || text.size() > kMaxName) return graph_.fresh_symbol();
    if (!Graph::is_fresh(text)) return Dim::symbol(text);
    const auto known = renamed_.find(text);
    return known != renamed_.end() ? known->second
                                   : renamed_.emplace(text, graph_.fresh_symbol()).first->second;
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
        case onnx::Node::overload:
          node.overload = read_text(message);
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
        case onnx::Attribute::sparse_tensor:
          a.sparse = parse_sparse_tensor(message.get_message());
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
        case onnx::Attribute::ref_attr_name:
          a.ref = read_text(message);
          break;
        default:
          message.skip();
      }
    if (!a.ref.empty())
      node.refs.emplace_back(a.name, a.ref);
    else
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
      case onnx::AttributeType::sparse_tensor:
        check(a.sparse.has_value(), "node '{}' ({}): attribute '{}' has no sparse tensor",
              node.name, node.op, a.name);
        node.attrs.set(a.name, tensors_.read(*a.sparse));
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

  TensorReader& tensors_;
  Graph& graph_;
  Budget budget_;
  const ReadAs& as_;
  std::map<std::string, Dim> renamed_;
};

}  // namespace

void Budget::count(const RawNode& node, int depth) {
  size_t weight = 1;
  for (int i = 0; i < depth; ++i) weight *= kLevel;
  edges_ += weight * (node.in.size() + node.out.size());
  nodes_ += weight;
  expect(0);
  check(edges_ <= kMaxEdges, "the model has more than {} inputs and outputs of nodes", kMaxEdges);
}

void Budget::expect(size_t nodes) const {
  check(nodes_ + nodes <= kMaxNodes, "the model has more than {} nodes", kMaxNodes);
}

std::string function_key(const std::string& domain, const std::string& name,
                         const std::string& overload) {
  return domain + "::" + name + (overload.empty() ? "" : ":" + overload);
}

RawModel parse_model(std::span<const char> bytes, TensorReader& tensors, Graph& graph,
                     const ReadAs& as) {
  return Parser(tensors, graph, as).parse(bytes);
}

}  // namespace ort
