// Writing ONNX: the graph's names, types and constants; ops of ai.onnx, and in dumps our own.
#include <algorithm>
#include <fstream>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <set>

#include "csrc/graph/schema.h"
#include "csrc/onnx/fields.h"
#include "csrc/onnx/onnx.h"
#include "csrc/onnx/tensor.h"
#include "csrc/onnx/versions.h"

namespace ort {
namespace {

using protozero::pbf_builder;

constexpr int kIrVersion = 13;
constexpr size_t kLarge = 1u << 20;
constexpr size_t kExternalAlign = 4096;

class Writer {
 public:
  Writer(const Graph& graph, Domains domains, std::string* external, std::string external_name,
         size_t external_from)
      : graph_(graph),
        domains_(domains),
        external_(external),
        external_name_(std::move(external_name)),
        external_from_(external_from),
        opsets_(lowest_opsets(graph)) {}

  // Of a body: names are unlike all of those around it, but what it captures has its name there.
  Writer(const Graph& body, Writer& around, const std::vector<std::string>& captured)
      : graph_(body),
        domains_(around.domains_),
        external_(around.external_),
        external_name_(around.external_name_),
        external_from_(around.external_from_),
        opsets_(around.opsets_),
        taken_(around.taken_),
        captured_(captured.size()) {
    for (size_t i = 0; i < captured.size(); ++i)
      names_[body.inputs()[body.inputs().size() - captured.size() + i]] = captured[i];
  }

  std::string write() {
    name_values();
    std::string bytes;
    pbf_builder<onnx::Model> model(bytes);
    model.add_int64(onnx::Model::ir_version, kIrVersion);
    model.add_string(onnx::Model::producer_name, "ortmodule");
    std::string graph;
    write_graph(graph);
    model.add_message(onnx::Model::graph, graph);
    for (const auto& [domain, version] : opsets_) {
      std::string opset;
      pbf_builder<onnx::OperatorSetId> writer(opset);
      writer.add_string(onnx::OperatorSetId::domain, domain);
      writer.add_int64(onnx::OperatorSetId::version, version);
      model.add_message(onnx::Model::opset_import, opset);
    }
    return bytes;
  }

 private:
  // Inputs and outputs keep their names; the rest are unique.
  void name_values() {
    for (const ValueId id : graph_.inputs()) taken_->insert(names_[id] = graph_.value(id).name());
    for (const Output& output : graph_.outputs())
      if (!names_.count(output.value)) taken_->insert(names_[output.value] = output.name);
    for (const Node* node : graph_.order())
      for (const ValueId id : node->out) name_value(id);
  }

  void name_value(ValueId id) {
    if (id == kNone || names_.count(id)) return;
    std::string name = graph_.value(id).name();
    if (name.empty() || taken_->count(name)) name = format("v{}", id);
    while (!taken_->insert(name).second) name += "_";
    names_[id] = name;
  }

  // Its outputs are named anew too: no name of the graphs around it is made again.
  std::string write_body() {
    for (const ValueId id : graph_.inputs()) name_value(id);
    for (const Node* node : graph_.order())
      for (const ValueId id : node->out) name_value(id);
    std::string bytes;
    pbf_builder<onnx::Graph> writer(bytes);
    write_nodes(writer);
    writer.add_string(onnx::Graph::name, "body");
    for (size_t i = 0; i + captured_ < graph_.inputs().size(); ++i) {
      const ValueId id = graph_.inputs()[i];
      add_value(writer, onnx::Graph::input, names_.at(id), graph_.value(id).type());
    }
    std::set<std::string> given;
    for (const Output& output : graph_.outputs()) {
      std::string name = names_.at(output.value);
      if (!given.insert(name).second || !graph_.value(output.value).producer()) {
        const std::string from = name;  // a value of another graph, or given twice
        while (!taken_->insert(name).second) name += "_";
        add_copy(writer, from, name);
      }
      add_value(writer, onnx::Graph::output, name, graph_.value(output.value).type());
    }
    return bytes;
  }

  void write_graph(std::string& bytes) {
    pbf_builder<onnx::Graph> writer(bytes);
    write_nodes(writer);
    add_second_names(writer);
    writer.add_string(onnx::Graph::name, "main");
    for (const ValueId id : graph_.inputs())
      add_value(writer, onnx::Graph::input, names_.at(id), graph_.value(id).type());
    for (const Output& output : graph_.outputs())
      add_value(writer, onnx::Graph::output, output.name, graph_.value(output.value).type());
  }

  void write_nodes(pbf_builder<onnx::Graph>& writer) {
    for (const Node* node : graph_.order()) {
      std::string part;
      if (node->schema->is_constant()) {
        write_tensor(part, *constant_of(node->output()), names_.at(node->out[0]));
        writer.add_message(onnx::Graph::initializer, part);
      } else {
        write_node(part, *node);
        writer.add_message(onnx::Graph::node, part);
      }
    }
  }

  static void add_copy(pbf_builder<onnx::Graph>& writer, const std::string& from,
                       const std::string& to) {
    std::string bytes;
    pbf_builder<onnx::Node> node(bytes);
    node.add_string(onnx::Node::input, from);
    node.add_string(onnx::Node::output, to);
    node.add_string(onnx::Node::op_type, "Identity");
    writer.add_message(onnx::Graph::node, bytes);
  }

  // An output that is an input, or a value given twice, needs a node of its own.
  void add_second_names(pbf_builder<onnx::Graph>& writer) {
    for (const Output& output : graph_.outputs()) {
      const std::string& name = names_.at(output.value);
      if (name != output.name) add_copy(writer, name, output.name);
    }
  }

  void write_node(std::string& bytes, const Node& node) {
    const bool standard = node.schema->is_standard();
    check(node.schema->stays_in_files() || domains_ == Domains::any,
          "[{}] has no standard ONNX form; {}", node.qualified(), node.describe());
    pbf_builder<onnx::Node> writer(bytes);
    // A gradient's bodies are given their inputs by name of place: they capture nothing.
    const size_t captures = standard ? static_cast<size_t>(node.attrs.i("captures", 0)) : 0;
    size_t last = node.in.size() - captures;
    while (last > 0 && node.in[last - 1] == kNone) --last;
    for (size_t i = 0; i < last; ++i)
      writer.add_string(onnx::Node::input, node.in[i] == kNone ? "" : names_.at(node.in[i]));
    for (const ValueId id : node.out)
      writer.add_string(onnx::Node::output, id == kNone ? "" : names_.at(id));
    writer.add_string(onnx::Node::name, format("{}_{}", node.op, node.id));
    writer.add_string(onnx::Node::op_type, node.op);
    write_bodies(writer, node, captures);
    write_names(writer, node);
    const auto& naming = node.schema->naming_values();
    const OnnxVersion* version = onnx_version(node.qualified(), opsets_.at(node.domain()));
    for (const auto& [name, value] : node.attrs) {
      if (standard && (node.owns_bodies() || !naming.empty()) && name == "captures") continue;
      if (std::find(naming.begin(), naming.end(), name) != naming.end()) continue;
      if (version && !version->has_attr(name)) continue;  // a default of later opsets
      std::string attribute;
      write_attribute(attribute, name, value);
      writer.add_message(onnx::Node::attribute, attribute);
    }
    if (!node.domain().empty()) writer.add_string(onnx::Node::domain, node.domain());
    if (domains_ == Domains::any) writer.add_string(onnx::Node::doc_string, provenance(node));
  }

  // Attributes that name values, with the names that those have in this file.
  void write_names(pbf_builder<onnx::Node>& writer, const Node& node) {
    size_t next = node.in.size() - static_cast<size_t>(node.attrs.i("captures", 0));
    for (const std::string& attr : node.schema->naming_values()) {
      const auto* one =
          node.attrs.has(attr) ? std::get_if<std::string>(node.attrs.find(attr)) : nullptr;
      std::vector<std::string> names(one ? 1 : node.attrs.list<std::string>(attr).size());
      for (std::string& name : names) name = names_.at(node.in[next++]);
      std::string attribute;
      write_attribute(attribute, attr, one ? Attr(names[0]) : Attr(names));
      writer.add_message(onnx::Node::attribute, attribute);
    }
  }

  void write_bodies(pbf_builder<onnx::Node>& writer, const Node& node, size_t captures) {
    std::vector<std::string> captured;
    for (size_t i = node.in.size() - captures; i < node.in.size(); ++i)
      captured.push_back(names_.at(node.in[i]));
    for (const auto& [name, body] : node.bodies) {
      std::string attribute;
      pbf_builder<onnx::Attribute> part(attribute);
      part.add_string(onnx::Attribute::name, name);
      part.add_message(onnx::Attribute::g, Writer(*body, *this, captured).write_body());
      part.add_int32(onnx::Attribute::type, static_cast<int>(onnx::AttributeType::graph));
      writer.add_message(onnx::Node::attribute, attribute);
    }
  }

  static std::string provenance(const Node& node) {
    return (node.where ? node.where->text() : "") + (node.by.empty() ? "" : "; by " + node.by);
  }

  void write_attribute(std::string& bytes, const std::string& name, const Attr& value) {
    pbf_builder<onnx::Attribute> writer(bytes);
    writer.add_string(onnx::Attribute::name, name);
    auto type = onnx::AttributeType::undefined;
    if (const auto* i = std::get_if<int64_t>(&value)) {
      writer.add_int64(onnx::Attribute::i, *i);
      type = onnx::AttributeType::i64;
    } else if (const auto* f = std::get_if<double>(&value)) {
      writer.add_float(onnx::Attribute::f, static_cast<float>(*f));
      type = onnx::AttributeType::f32;
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      writer.add_bytes(onnx::Attribute::s, *s);
      type = onnx::AttributeType::string;
    } else if (const auto* t = std::get_if<Tensor>(&value)) {
      std::string tensor;
      write_tensor(tensor, *t, "");
      writer.add_message(onnx::Attribute::t, tensor);
      type = onnx::AttributeType::tensor;
    } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
      for (const double item : *floats)
        writer.add_float(onnx::Attribute::floats, static_cast<float>(item));
      type = onnx::AttributeType::floats;
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      for (const int64_t item : *ints) writer.add_int64(onnx::Attribute::ints, item);
      type = onnx::AttributeType::ints;
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
      for (const std::string& item : *strings) writer.add_bytes(onnx::Attribute::strings, item);
      type = onnx::AttributeType::strings;
    } else {
      const auto* dims = std::get_if<Dims>(&value);
      check(dims && domains_ == Domains::any, "attribute '{}' has no ONNX form", name);
      for (const Dim& dim : *dims) writer.add_bytes(onnx::Attribute::strings, dim.text());
      type = onnx::AttributeType::strings;
    }
    writer.add_int32(onnx::Attribute::type, static_cast<int>(type));
  }

  void write_tensor(std::string& bytes, const Tensor& tensor, const std::string& name) {
    pbf_builder<onnx::TensorField> writer(bytes);
    for (const int64_t size : tensor.sizes) writer.add_int64(onnx::TensorField::dims, size);
    writer.add_int32(onnx::TensorField::data_type, static_cast<int>(tensor.dtype));
    if (!name.empty()) writer.add_string(onnx::TensorField::name, name);
    if (tensor.dtype == DType::string) {
      for (int64_t i = 0; i < tensor.count(); ++i)
        writer.add_bytes(onnx::TensorField::string_data, text_of(tensor, i));
      return;
    }
    const bool packs = bits_of(tensor.dtype) < 8;
    const std::string stream = packs ? packed(tensor) : "";
    const std::string_view data =
        packs ? std::string_view(stream)
              : std::string_view(static_cast<const char*>(tensor.data), tensor.bytes());
    if (external_ && !name.empty() && tensor.bytes() >= external_from_) {
      external_->resize((external_->size() + kExternalAlign - 1) / kExternalAlign * kExternalAlign);
      add_entry(writer, "location", external_name_);
      add_entry(writer, "offset", std::to_string(external_->size()));
      add_entry(writer, "length", std::to_string(data.size()));
      writer.add_int32(onnx::TensorField::data_location,
                       static_cast<int>(onnx::DataLocation::external));
      external_->append(data);
    } else {
      writer.add_bytes(onnx::TensorField::raw_data, data.data(), data.size());
    }
  }

  static void add_entry(pbf_builder<onnx::TensorField>& writer, const std::string& key,
                        const std::string& value) {
    std::string entry;
    pbf_builder<onnx::StringStringEntry> pair(entry);
    pair.add_string(onnx::StringStringEntry::key, key);
    pair.add_string(onnx::StringStringEntry::value, value);
    writer.add_message(onnx::TensorField::external_data, entry);
  }

  static std::string tensor_type(const Type& type) {
    std::string shape, tensor;
    pbf_builder<onnx::TensorShape> shape_writer(shape);
    pbf_builder<onnx::TensorType> tensor_writer(tensor);
    tensor_writer.add_int32(onnx::TensorType::elem_type, static_cast<int>(type.dtype));
    if (type.dims) {
      for (const Dim& dim : *type.dims) {
        std::string item;
        pbf_builder<onnx::Dimension> size(item);
        if (dim.value())
          size.add_int64(onnx::Dimension::dim_value, *dim.value());
        else
          size.add_string(onnx::Dimension::dim_param, dim.text());
        shape_writer.add_message(onnx::TensorShape::dim, item);
      }
      tensor_writer.add_message(onnx::TensorType::shape, shape);
    }
    return tensor;
  }

  static std::string type_bytes(const Type& type) {
    std::string bytes, held;
    pbf_builder<onnx::TypeField> writer(bytes);
    if (type.is_tensor()) {
      writer.add_message(onnx::TypeField::tensor_type, tensor_type(type));
      return bytes;
    }
    if (type.kind == Type::Kind::map) {
      pbf_builder<onnx::MapType> map(held);
      map.add_int32(onnx::MapType::key_type, static_cast<int>(type.dtype));
      map.add_message(onnx::MapType::value_type, type_bytes(type.held()));
      writer.add_message(onnx::TypeField::map_type, held);
      return bytes;
    }
    const bool sequence = type.kind == Type::Kind::sequence;
    check(sequence || type.kind == Type::Kind::optional, "{} has no ONNX form", type.text());
    pbf_builder<onnx::ContainerType> container(held);
    container.add_message(onnx::ContainerType::elem_type, type_bytes(type.held()));
    writer.add_message(sequence ? onnx::TypeField::sequence_type : onnx::TypeField::optional_type,
                       held);
    return bytes;
  }

  static void add_value(pbf_builder<onnx::Graph>& writer, onnx::Graph field,
                        const std::string& name, const Type& type) {
    std::string bytes;
    pbf_builder<onnx::ValueInfo> value(bytes);
    value.add_string(onnx::ValueInfo::name, name);
    value.add_message(onnx::ValueInfo::type, type_bytes(type));
    writer.add_message(field, bytes);
  }

  const Graph& graph_;
  Domains domains_;
  std::string* external_;
  std::string external_name_;
  size_t external_from_;
  Opsets opsets_;  // by domain
  std::map<ValueId, std::string> names_;
  std::shared_ptr<std::set<std::string>> taken_ = std::make_shared<std::set<std::string>>();
  size_t captured_ = 0;  // of a body: its last inputs
};

void write_bytes(const std::string& path, const std::string& bytes) {
  check_path(path);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.flush();
  check(file.good(), "cannot write '{}'", path);
}

size_t constant_bytes(const Graph& graph) {
  size_t total = 0;
  for (const Node* node : graph.order())
    if (const Tensor* tensor = node->schema->is_constant() ? constant_of(node->output()) : nullptr)
      total += tensor->bytes();
  return total;
}

}  // namespace

std::string write_onnx(const Graph& graph, std::string* external_bytes,
                       const std::string& external_name, size_t external_from, Domains domains) {
  return Writer(graph, domains, external_bytes, external_name, external_from).write();
}

void write_onnx_file(const Graph& graph, const std::string& path, size_t inside_limit,
                     Domains domains) {
  if (constant_bytes(graph) <= inside_limit)
    return write_bytes(path, write_onnx(graph, nullptr, "", 0, domains));
  std::string external;
  const size_t slash = path.rfind('/');
  const std::string name = (slash == std::string::npos ? path : path.substr(slash + 1)) + ".data";
  write_bytes(path, write_onnx(graph, &external, name, std::min(kLarge, inside_limit), domains));
  write_bytes(path + ".data", external);
}

}  // namespace ort
