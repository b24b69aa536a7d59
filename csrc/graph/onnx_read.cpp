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

constexpr int kOldestOpset = 13;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxNodes = 1000000, kMaxEdges = 8000000;
constexpr size_t kMaxName = 1000;  // characters of a size's name

using protozero::pbf_message;
using protozero::pbf_reader;

struct RawNode {
  std::string op, domain, name;
  std::vector<std::string> in, out;
  Attrs attrs;
};

struct RawAttribute {
  std::string name, s;
  int64_t i = 0, type = 0;
  double f = 0;
  std::optional<RawTensor> tensor;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
};

struct RawValue {
  std::string name;
  Type type;
  bool typed = false;
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
    check(opset_ >= kOldestOpset && opset_ <= kOpset,
          "the model has opset {}, supported are {} to {}", opset_, kOldestOpset, kOpset);
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

  void read_graph(pbf_message<onnx::Graph> message) {
    std::vector<RawNode> nodes;
    std::vector<RawValue> inputs, outputs;
    size_t edges = 0;
    while (message.next()) switch (message.tag()) {
        case onnx::Graph::node:
          nodes.push_back(read_node(message.get_message()));
          edges += nodes.back().in.size() + nodes.back().out.size();
          check(nodes.size() <= kMaxNodes, "the model has more than {} nodes", kMaxNodes);
          check(edges <= kMaxEdges, "the model has more than {} inputs and outputs of nodes",
                kMaxEdges);
          break;
        case onnx::Graph::initializer:
          add_initializer(parse_tensor(message.get_message()));
          break;
        case onnx::Graph::input:
          inputs.push_back(read_value(message.get_message()));
          break;
        case onnx::Graph::output:
          outputs.push_back(read_value(message.get_message()));
          break;
        case onnx::Graph::sparse_initializer:
          fail("the model has a sparse initializer, which is not supported");
        default:
          message.skip();
      }
    for (const RawValue& input : inputs)
      for (const Dim& dim : input.type.dims.value_or(Dims{}))
        if (const auto name = dim.symbol_name()) names_.insert(*name);
    std::set<std::string> taken;
    for (RawValue& input : inputs) {
      check(taken.insert(input.name).second, "graph input '{}' is named twice", input.name);
      add_input(input);
    }
    for (RawNode& node : nodes) add_node(node);
    std::set<std::string> given;
    for (const RawValue& output : outputs) {
      check(given.insert(output.name).second, "graph output '{}' is named twice", output.name);
      const auto found = values_.find(output.name);
      check(found != values_.end(), "graph output '{}' is made by no node", output.name);
      graph_->output(found->second, output.name);
    }
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
          pbf_message<onnx::ContainerType> inner = message.get_message();
          while (inner.next())
            if (inner.tag() == onnx::ContainerType::elem_type)
              type = read_type(inner.get_message(), depth + 1);
            else
              inner.skip();
          type.kind = sequence ? Type::Kind::sequence : Type::Kind::optional;
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

  RawNode read_node(pbf_message<onnx::Node> message) {
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
    for (const pbf_reader& attribute : attributes) read_attribute(attribute, node);
    return node;
  }

  void read_attribute(pbf_message<onnx::Attribute> message, RawNode& node) {
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

  void define(const std::string& name, Value value) {
    check(values_.emplace(name, value).second, "'{}' is made twice", name);
    graph_->set_name(value, name);
  }

  void add_initializer(const RawTensor& tensor) {
    define(tensor.name, graph_->constant(tensors_.read(tensor)));
  }

  void add_input(const RawValue& input) {
    if (values_.count(input.name))
      return;  // an initializer with a default that may be overridden: it is not
    check(input.typed, "graph input '{}' has no type", input.name);
    check(input.type.kind == Type::Kind::tensor, "graph input '{}' is {}, expected a tensor",
          input.name, input.type.text());
    Type type = input.type;
    if (type.dims)
      for (Dim& dim : *type.dims) dim = related_dim(dim);
    values_.emplace(input.name, graph_->input(input.name, std::move(type)));
  }

  void add_node(RawNode& node) {
    const std::string op = node.domain.empty() ? node.op : node.domain + "::" + node.op;
    const OpSchema* schema = ops_.find(op);
    const bool known = schema && schema->is_standard();
    check(known, "node '{}': op '{}' of opset {} is not known", node.name, op, opset_);
    std::vector<Value> in;
    for (const std::string& name : node.in) {
      const auto found = values_.find(name);
      check(name.empty() || found != values_.end(),
            "node '{}' ({}) reads '{}', which nothing before it makes", node.name, op, name);
      in.push_back(name.empty() ? Value{} : found->second);
    }
    graph_->context.where =
        std::make_shared<Where>(Where{node.name.empty() ? node.op : node.name, "", 0});
    const auto out = emit(node, *schema, in);
    for (size_t i = 0; i < out.size(); ++i)
      if (!node.out[i].empty()) define(node.out[i], out[i]);
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
  std::vector<Value> emit(RawNode& node, const OpSchema& schema, std::vector<Value>& in) {
    try {
      upgrade(schema, opset_, *graph_, in, node.attrs);
      check_kinds(node, schema);
      return graph_->emit(schema.qualified(), in, std::move(node.attrs),
                          static_cast<int>(node.out.size()));
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
  std::map<std::string, Value> values_;
  std::set<std::string> names_;  // of the inputs' sizes
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
