// Writing ONNX: the graph's names, types and constants; ops of ai.onnx, and in dumps our own.
#include <algorithm>
#include <fstream>
#include <map>
#include <protozero/pbf_writer.hpp>
#include <set>

#include "csrc/graph/onnx.h"
#include "csrc/graph/schema.h"

namespace ort {
namespace {

using protozero::pbf_writer;

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
        external_from_(external_from) {}

  std::string write() {
    name_values();
    std::string bytes;
    pbf_writer model(bytes);
    model.add_int64(1, kIrVersion);
    model.add_string(2, "ortmodule");
    std::string graph;
    write_graph(graph);
    model.add_message(7, graph);
    std::set<std::string> domains = {""};
    for (const Node* node : graph_.order()) domains.insert(node->domain());
    for (const std::string& domain : domains) {
      std::string opset;
      pbf_writer writer(opset);
      writer.add_string(1, domain);
      writer.add_int64(2, domain.empty() ? kOpset : 1);
      model.add_message(8, opset);
    }
    return bytes;
  }

 private:
  // Inputs and outputs keep their names; the rest are unique.
  void name_values() {
    std::set<std::string> taken;
    for (const ValueId id : graph_.inputs()) taken.insert(names_[id] = graph_.value(id).name());
    for (const Output& output : graph_.outputs())
      if (!names_.count(output.value)) taken.insert(names_[output.value] = output.name);
    for (const Node* node : graph_.order())
      for (const ValueId id : node->out) {
        if (id == kNone || names_.count(id)) continue;
        std::string name = graph_.value(id).name();
        if (name.empty() || taken.count(name)) name = format("v{}", id);
        while (!taken.insert(name).second) name += "_";
        names_[id] = name;
      }
  }

  void write_graph(std::string& bytes) {
    pbf_writer writer(bytes);
    for (const Node* node : graph_.order()) {
      std::string part;
      if (node->schema->is_constant()) {
        write_tensor(part, *constant_of(node->output()), names_.at(node->out[0]));
        writer.add_message(5, part);
      } else {
        write_node(part, *node);
        writer.add_message(1, part);
      }
    }
    add_second_names(writer);
    writer.add_string(2, "main");
    for (const ValueId id : graph_.inputs())
      add_value(writer, 11, names_.at(id), graph_.value(id).type());
    for (const Output& output : graph_.outputs())
      add_value(writer, 12, output.name, graph_.value(output.value).type());
  }

  // An output that is an input, or a value given twice, needs a node of its own.
  void add_second_names(pbf_writer& writer) {
    for (const Output& output : graph_.outputs()) {
      const std::string& name = names_.at(output.value);
      if (name == output.name) continue;
      std::string bytes;
      pbf_writer node(bytes);
      node.add_string(1, name);
      node.add_string(2, output.name);
      node.add_string(4, "Identity");
      writer.add_message(1, bytes);
    }
  }

  void write_node(std::string& bytes, const Node& node) {
    const bool standard = node.schema->is_standard();
    check(standard || domains_ == Domains::any, "[{}] has no standard ONNX form; {}",
          node.qualified(), node.describe());
    pbf_writer writer(bytes);
    size_t last = node.in.size();
    while (last > 0 && node.in[last - 1] == kNone) --last;
    for (size_t i = 0; i < last; ++i)
      writer.add_string(1, node.in[i] == kNone ? "" : names_.at(node.in[i]));
    for (const ValueId id : node.out) writer.add_string(2, id == kNone ? "" : names_.at(id));
    writer.add_string(3, format("{}_{}", node.op, node.id));
    writer.add_string(4, node.op);
    for (const auto& [name, value] : node.attrs) {
      std::string attribute;
      write_attribute(attribute, name, value);
      writer.add_message(5, attribute);
    }
    if (!standard) writer.add_string(7, node.domain());
    if (domains_ == Domains::any) writer.add_string(6, provenance(node));
  }

  static std::string provenance(const Node& node) {
    return (node.where ? node.where->text() : "") + (node.by.empty() ? "" : "; by " + node.by);
  }

  void write_attribute(std::string& bytes, const std::string& name, const Attr& value) {
    pbf_writer writer(bytes);
    writer.add_string(1, name);
    int type = 0;
    if (const auto* i = std::get_if<int64_t>(&value)) {
      writer.add_int64(3, *i);
      type = 2;
    } else if (const auto* f = std::get_if<double>(&value)) {
      writer.add_float(2, static_cast<float>(*f));
      type = 1;
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      writer.add_bytes(4, *s);
      type = 3;
    } else if (const auto* t = std::get_if<Tensor>(&value)) {
      std::string tensor;
      write_tensor(tensor, *t, "");
      writer.add_message(5, tensor);
      type = 4;
    } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
      for (const double item : *floats) writer.add_float(7, static_cast<float>(item));
      type = 6;
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      for (const int64_t item : *ints) writer.add_int64(8, item);
      type = 7;
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
      for (const std::string& item : *strings) writer.add_bytes(9, item);
      type = 8;
    } else {
      const auto* dims = std::get_if<Dims>(&value);
      check(dims && domains_ == Domains::any, "attribute '{}' has no ONNX form", name);
      for (const Dim& dim : *dims) writer.add_bytes(9, dim.text());
      type = 8;
    }
    writer.add_int32(20, type);
  }

  void write_tensor(std::string& bytes, const Tensor& tensor, const std::string& name) {
    pbf_writer writer(bytes);
    for (const int64_t size : tensor.sizes) writer.add_int64(1, size);
    writer.add_int32(2, static_cast<int>(tensor.dtype));
    if (!name.empty()) writer.add_string(8, name);
    if (tensor.dtype == DType::string) {
      for (int64_t i = 0; i < tensor.count(); ++i) writer.add_bytes(6, text_of(tensor, i));
    } else if (external_ && !name.empty() && tensor.bytes() >= external_from_) {
      external_->resize((external_->size() + kExternalAlign - 1) / kExternalAlign * kExternalAlign);
      add_entry(writer, "location", external_name_);
      add_entry(writer, "offset", std::to_string(external_->size()));
      add_entry(writer, "length", std::to_string(tensor.bytes()));
      writer.add_int32(14, 1);
      external_->append(static_cast<const char*>(tensor.data), tensor.bytes());
    } else {
      writer.add_bytes(9, static_cast<const char*>(tensor.data), tensor.bytes());
    }
  }

  static void add_entry(pbf_writer& writer, const std::string& key, const std::string& value) {
    std::string entry;
    pbf_writer pair(entry);
    pair.add_string(1, key);
    pair.add_string(2, value);
    writer.add_message(13, entry);
  }

  static void add_value(pbf_writer& writer, int field, const std::string& name, const Type& type) {
    std::string shape, tensor, kind, bytes;
    pbf_writer shape_writer(shape), tensor_writer(tensor), kind_writer(kind), value(bytes);
    tensor_writer.add_int32(1, static_cast<int>(type.dtype));
    if (type.dims) {
      for (const Dim& dim : *type.dims) {
        std::string item;
        pbf_writer size(item);
        if (dim.value())
          size.add_int64(1, *dim.value());
        else
          size.add_string(2, dim.text());
        shape_writer.add_message(1, item);
      }
      tensor_writer.add_message(2, shape);
    }
    kind_writer.add_message(1, tensor);
    value.add_string(1, name);
    value.add_message(2, kind);
    writer.add_message(static_cast<protozero::pbf_tag_type>(field), bytes);
  }

  const Graph& graph_;
  Domains domains_;
  std::string* external_;
  std::string external_name_;
  size_t external_from_;
  std::map<ValueId, std::string> names_;
};

void write_bytes(const std::string& path, const std::string& bytes) {
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
