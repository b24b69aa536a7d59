// Reading ONNX: protobuf fields by number, names to values, opset differences that are only spelling.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "csrc/graph/onnx.h"
#include "csrc/graph/onnx_file.h"
#include "csrc/graph/schema.h"

namespace ort {
namespace {

constexpr int kOldestOpset = 13;
constexpr int kMaxDepth = 64;

using protozero::pbf_reader;

std::string text_of(pbf_reader& message) { return message.get_string(); }

template <class Range>
void append_ints(const Range& range, std::vector<int64_t>& out) {
  for (const auto value : range) out.push_back(static_cast<int64_t>(value));
}

// A repeated number, packed or not.
void read_int64s(pbf_reader& message, std::vector<int64_t>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    append_ints(message.get_packed_int64(), out);
  else
    out.push_back(message.get_int64());
}

void read_floats(pbf_reader& message, std::vector<double>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    for (const float value : message.get_packed_float()) out.push_back(value);
  else
    out.push_back(message.get_float());
}

void read_doubles(pbf_reader& message, std::vector<double>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    for (const double value : message.get_packed_double()) out.push_back(value);
  else
    out.push_back(message.get_double());
}

// A TensorProto as it stands in the file.
struct RawTensor {
  std::string name;
  Sizes sizes;
  int64_t dtype = 0;
  std::vector<int64_t> ints;     // int32_data, int64_data, uint64_data
  std::vector<double> floats;    // float_data, double_data
  std::vector<std::string> strings;
  protozero::data_view raw;
  bool has_raw = false, external = false;
  std::map<std::string, std::string> location;
};

RawTensor parse_tensor(pbf_reader message) {
  RawTensor t;
  while (message.next()) switch (message.tag()) {
      case 1: read_int64s(message, t.sizes); break;
      case 2: t.dtype = message.get_int32(); break;
      case 4: read_floats(message, t.floats); break;
      case 5:
      case 7:
      case 11: read_int64s(message, t.ints); break;
      case 6: t.strings.push_back(text_of(message)); break;
      case 8: t.name = text_of(message); break;
      case 9:
        t.raw = message.get_view();
        t.has_raw = true;
        break;
      case 10: read_doubles(message, t.floats); break;
      case 13: {
        pbf_reader entry = message.get_message();
        std::string key, value;
        while (entry.next()) {
          if (entry.tag() == 1)
            key = text_of(entry);
          else if (entry.tag() == 2)
            value = text_of(entry);
          else
            entry.skip();
        }
        t.location[key] = value;
        break;
      }
      case 14: t.external = message.get_int32() == 1; break;
      default: message.skip();
    }
  return t;
}

int64_t number_in(const RawTensor& t, const char* key, int64_t otherwise) {
  const auto found = t.location.find(key);
  if (found == t.location.end()) return otherwise;
  char* end = nullptr;
  const int64_t value = std::strtoll(found->second.c_str(), &end, 10);
  check(!found->second.empty() && *end == 0 && value >= 0, "tensor '{}': external data {} is '{}', expected a number",
        t.name, key, found->second);
  return value;
}

class TensorReader {
 public:
  TensorReader(const std::string& folder, std::shared_ptr<const void> owner) : files_(folder), owner_(std::move(owner)) {}

  Tensor read(const RawTensor& t) {
    check(known_dtype(t.dtype) && !is_complex(static_cast<DType>(t.dtype)), "tensor '{}' has element type {}, which is not supported",
          t.name, t.dtype);
    const DType dtype = static_cast<DType>(t.dtype);
    for (const int64_t size : t.sizes) check(size >= 0, "tensor '{}' has negative size {}", t.name, size);
    const int64_t count = element_count(t.sizes);
    if (dtype == DType::string) return read_strings(t, count);
    const int64_t bytes = checked_mul(count, static_cast<int64_t>(size_of(dtype)));
    if (t.external) return read_external(t, dtype, bytes);
    if (t.has_raw) return read_raw(t, dtype, bytes);
    return read_numbers(t, dtype, count);
  }

 private:
  static Tensor read_strings(const RawTensor& t, int64_t count) {
    check(static_cast<int64_t>(t.strings.size()) == count, "tensor '{}' has {} strings, expected {}", t.name,
          t.strings.size(), count);
    Tensor result = Tensor::empty(DType::string, t.sizes);
    result.strings = t.strings;
    return result;
  }

  // The bytes where they are when they are aligned, else a copy.
  static Tensor borrow(const char* data, DType dtype, const Sizes& sizes, std::shared_ptr<const void> owner) {
    Tensor result;
    if (owner && reinterpret_cast<uintptr_t>(data) % std::max<size_t>(size_of(dtype), 16) == 0) {
      result.dtype = dtype;
      result.sizes = sizes;
      result.data = const_cast<char*>(data);
      result.owner = std::move(owner);
      return result;
    }
    result = Tensor::empty(dtype, sizes);
    if (result.bytes() > 0) std::memcpy(result.data, data, result.bytes());
    return result;
  }

  Tensor read_raw(const RawTensor& t, DType dtype, int64_t bytes) {
    check(static_cast<int64_t>(t.raw.size()) == bytes, "tensor '{}' of shape {} has {} bytes, expected {}", t.name, t.sizes,
          t.raw.size(), bytes);
    return borrow(t.raw.data(), dtype, t.sizes, owner_);
  }

  Tensor read_external(const RawTensor& t, DType dtype, int64_t bytes) {
    const auto location = t.location.find("location");
    check(location != t.location.end(), "tensor '{}' is external but names no location", t.name);
    const auto file = files_.open(location->second, t.name);
    const int64_t size = static_cast<int64_t>(file->bytes().size());
    const int64_t offset = number_in(t, "offset", 0), length = number_in(t, "length", bytes);
    check(length == bytes, "tensor '{}' of shape {} has {} external bytes, expected {}", t.name, t.sizes, length, bytes);
    check(offset <= size && bytes <= size - offset, "tensor '{}' ends at byte {} of '{}', which has {}", t.name,
          checked_add(offset, bytes), location->second, size);
    return borrow(file->bytes().data() + offset, dtype, t.sizes, file);
  }

  static Tensor read_numbers(const RawTensor& t, DType dtype, int64_t count) {
    const bool floats = dtype == DType::f32 || dtype == DType::f64;
    const int64_t given = static_cast<int64_t>(floats ? t.floats.size() : t.ints.size());
    check(given == count, "tensor '{}' of shape {} has {} elements, expected {}", t.name, t.sizes, given, count);
    Tensor result = Tensor::empty(dtype, t.sizes);
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(i);
      if (floats)
        set_element(result, i, t.floats[at]);
      else if (dtype == DType::f16 || dtype == DType::bf16)
        result.as<uint16_t>()[i] = static_cast<uint16_t>(t.ints[at]);
      else
        dispatch(dtype, [&]<class T>() { result.as<T>()[i] = static_cast<T>(t.ints[at]); });
    }
    return result;
  }

  ExternalFiles files_;
  std::shared_ptr<const void> owner_;
};

struct RawNode {
  std::string op, domain, name;
  std::vector<std::string> in, out;
  Attrs attrs;
};

struct RawValue {
  std::string name;
  Type type;
  bool typed = false;
};

class Reader {
 public:
  Reader(const OpSet& ops, const std::string& folder, std::shared_ptr<const void> owner)
      : ops_(ops), tensors_(folder, std::move(owner)), graph_(std::make_unique<Graph>(ops)) {}

  std::unique_ptr<Graph> read(std::span<const char> bytes) {
    pbf_reader model(bytes.data(), bytes.size());
    protozero::data_view graph;
    bool found = false;
    while (model.next()) switch (model.tag()) {
        case 7:
          graph = model.get_view();
          found = true;
          break;
        case 8: read_opset(model.get_message()); break;
        default: model.skip();
      }
    check(found, "no graph in the file: is it an ONNX model?");
    check(opset_ > 0, "the model names no ai.onnx opset");
    check(opset_ >= kOldestOpset && opset_ <= kOpset, "the model has opset {}, supported are {} to {}", opset_, kOldestOpset,
          kOpset);
    read_graph(pbf_reader(graph));
    return std::move(graph_);
  }

 private:
  void read_opset(pbf_reader message) {
    std::string domain;
    int64_t version = 0;
    while (message.next()) {
      if (message.tag() == 1)
        domain = text_of(message);
      else if (message.tag() == 2)
        version = message.get_int64();
      else
        message.skip();
    }
    if (domain.empty() || domain == "ai.onnx") opset_ = static_cast<int>(std::clamp<int64_t>(version, 0, 1 << 20));
  }

  void read_graph(pbf_reader message) {
    std::vector<RawNode> nodes;
    std::vector<RawValue> inputs, outputs;
    while (message.next()) switch (message.tag()) {
        case 1: nodes.push_back(read_node(message.get_message())); break;
        case 5: add_initializer(parse_tensor(message.get_message())); break;
        case 11: inputs.push_back(read_value(message.get_message())); break;
        case 12: outputs.push_back(read_value(message.get_message())); break;
        case 15: fail("the model has a sparse initializer, which is not supported");
        default: message.skip();
      }
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

  RawValue read_value(pbf_reader message) {
    RawValue value;
    while (message.next()) {
      if (message.tag() == 1) {
        value.name = text_of(message);
      } else if (message.tag() == 2) {
        value.type = read_type(message.get_message(), 0);
        value.typed = true;
      } else {
        message.skip();
      }
    }
    return value;
  }

  Type read_type(pbf_reader message, int depth) {
    check(depth < kMaxDepth, "a type is nested too deeply");
    Type type;
    while (message.next()) switch (message.tag()) {
        case 1: type = read_tensor_type(message.get_message()); break;
        case 4:
        case 9: {
          const bool sequence = message.tag() == 4;
          pbf_reader inner = message.get_message();
          while (inner.next())
            if (inner.tag() == 1)
              type = read_type(inner.get_message(), depth + 1);
            else
              inner.skip();
          type.kind = sequence ? Type::Kind::sequence : Type::Kind::optional;
          break;
        }
        default: message.skip();
      }
    return type;
  }

  Type read_tensor_type(pbf_reader message) {
    int64_t dtype = 0;
    std::optional<Dims> dims;
    while (message.next()) switch (message.tag()) {
        case 1: dtype = message.get_int32(); break;
        case 2: dims = read_shape(message.get_message()); break;
        default: message.skip();
      }
    check(known_dtype(dtype), "a value has element type {}, which is not supported", dtype);
    return Type::tensor(static_cast<DType>(dtype), std::move(dims));
  }

  Dims read_shape(pbf_reader message) {
    Dims dims;
    while (message.next()) {
      if (message.tag() != 1) {
        message.skip();
        continue;
      }
      pbf_reader dim = message.get_message();
      std::optional<Dim> size;
      while (dim.next()) {
        if (dim.tag() == 1)
          size = Dim(dim.get_int64());
        else if (dim.tag() == 2)
          size = named_dim(text_of(dim));
        else
          dim.skip();
      }
      check(!size || !size->value() || *size->value() >= 0, "a value has negative size {}", size.value_or(0));
      dims.push_back(size ? *size : graph_->fresh_symbol());
    }
    return dims;
  }

  // A dim_param: an expression in our grammar, or any other text as a symbol of that name.
  Dim named_dim(const std::string& text) {
    if (text.empty()) return graph_->fresh_symbol();
    try {
      return Dim::parse(text);
    } catch (const Error&) {
      return Dim::symbol(text);
    }
  }

  RawNode read_node(pbf_reader message) {
    RawNode node;
    std::vector<pbf_reader> attributes;
    while (message.next()) switch (message.tag()) {
        case 1: node.in.push_back(text_of(message)); break;
        case 2: node.out.push_back(text_of(message)); break;
        case 3: node.name = text_of(message); break;
        case 4: node.op = text_of(message); break;
        case 5: attributes.push_back(message.get_message()); break;
        case 7: node.domain = text_of(message); break;
        default: message.skip();
      }
    if (node.domain == "ai.onnx") node.domain.clear();
    for (const pbf_reader& attribute : attributes) read_attribute(attribute, node);
    return node;
  }

  void read_attribute(pbf_reader message, RawNode& node) {
    std::string name, s;
    int64_t i = 0, type = 0;
    double f = 0;
    std::optional<RawTensor> tensor;
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    while (message.next()) switch (message.tag()) {
        case 1: name = text_of(message); break;
        case 2: f = message.get_float(); break;
        case 3: i = message.get_int64(); break;
        case 4: s = text_of(message); break;
        case 5: tensor = parse_tensor(message.get_message()); break;
        case 7: read_floats(message, floats); break;
        case 8: read_int64s(message, ints); break;
        case 9: strings.push_back(text_of(message)); break;
        case 20: type = message.get_int32(); break;
        default: message.skip();
      }
    switch (type) {
      case 1: node.attrs.set(name, f); break;
      case 2: node.attrs.set(name, i); break;
      case 3: node.attrs.set(name, s); break;
      case 4:
        check(tensor.has_value(), "node '{}' ({}): attribute '{}' has no tensor", node.name, node.op, name);
        node.attrs.set(name, tensors_.read(*tensor));
        break;
      case 6: node.attrs.set(name, floats); break;
      case 7: node.attrs.set(name, ints); break;
      case 8: node.attrs.set(name, strings); break;
      default:
        fail("node '{}' ({}): attribute '{}' has type {}, which is not supported", node.name, node.op, name, type);
    }
  }

  void define(const std::string& name, Value value) {
    check(values_.emplace(name, value).second, "'{}' is made twice", name);
    graph_->set_name(value, name);
  }

  void add_initializer(const RawTensor& tensor) { define(tensor.name, graph_->constant(tensors_.read(tensor))); }

  void add_input(const RawValue& input) {
    if (values_.count(input.name)) return;  // an initializer with a default that may be overridden: it is not
    check(input.typed, "graph input '{}' has no type", input.name);
    check(input.type.kind == Type::Kind::tensor, "graph input '{}' is {}, expected a tensor", input.name, input.type.text());
    values_.emplace(input.name, graph_->input(input.name, input.type));
  }

  void add_node(RawNode& node) {
    const std::string op = node.domain.empty() ? node.op : node.domain + "::" + node.op;
    const OpSchema* schema = ops_.find(op);
    const bool known = schema && node.domain != "ort" && node.domain != "aten";
    check(known, "node '{}': op '{}' of opset {} is not known", node.name, op, opset_);
    std::vector<Value> in;
    for (const std::string& name : node.in) {
      const auto found = values_.find(name);
      check(name.empty() || found != values_.end(), "node '{}' ({}) reads '{}', which nothing before it makes", node.name, op,
            name);
      in.push_back(name.empty() ? Value{} : found->second);
    }
    graph_->context.where = std::make_shared<Where>(Where{node.name.empty() ? node.op : node.name, "", 0});
    const auto out = emit(node, *schema, in);
    for (size_t i = 0; i < out.size(); ++i)
      if (!node.out[i].empty()) define(node.out[i], out[i]);
  }

  // An attribute is of the kind that its default is of.
  static void check_kinds(const RawNode& node, const OpSchema& schema) {
    for (const auto& spec : schema.attrs()) {
      const Attr* given = node.attrs.find(spec.name);
      const bool same = !given || !spec.otherwise || given->index() == spec.otherwise->index();
      check(same, "node '{}' ({}): attribute '{}' has another type than the op says", node.name, node.op, spec.name);
    }
  }

  // Every error of the op names the node.
  std::vector<Value> emit(RawNode& node, const OpSchema& schema, std::vector<Value>& in) {
    try {
      adapt(node, schema, in);
      check_kinds(node, schema);
      return graph_->emit(schema.qualified(), in, std::move(node.attrs), static_cast<int>(node.out.size()));
    } catch (const std::bad_variant_access&) {
      fail("node '{}' ({}): an attribute has another type than the op says", node.name, node.op);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (node.name.empty() || text.find(node.name) != std::string::npos) throw;
      fail("node '{}': {}", node.name, text);
    }
  }

  // Differences between opsets that are spelling only; a difference in meaning is an error.
  void adapt(RawNode& node, const OpSchema& schema, std::vector<Value>& in) {
    if (node.op == "Constant") return adapt_constant(node);
    const bool axes_attribute = node.op.starts_with("Reduce") && opset_ < 18 && node.attrs.has("axes");
    if (axes_attribute) {
      in.resize(2);
      in[1] = graph_->ints(node.attrs.ints("axes"));
      node.attrs.erase("axes");
    }
    const bool reduction = node.op.starts_with("Reduce");
    check(reduction || opset_ >= schema.since_opset() || node.op == "BatchNormalization",
          "node '{}': op '{}' has another meaning in opset {} than since opset {}", node.name, node.op, opset_,
          schema.since_opset());
  }

  void adapt_constant(RawNode& node) {
    const auto vector_of = [&](DType dtype, const std::vector<double>& values) {
      Tensor tensor = Tensor::empty(dtype, {static_cast<int64_t>(values.size())});
      for (size_t i = 0; i < values.size(); ++i) set_element(tensor, static_cast<int64_t>(i), values[i]);
      return tensor;
    };
    if (node.attrs.has("value")) return;
    Tensor tensor;
    if (node.attrs.has("value_float")) {
      tensor = Tensor::scalar(DType::f32, node.attrs.f("value_float"));
    } else if (node.attrs.has("value_int")) {
      tensor = Tensor::of({node.attrs.i("value_int")});
      tensor.sizes.clear();
    } else if (node.attrs.has("value_ints")) {
      tensor = Tensor::of(node.attrs.ints("value_ints"));
    } else if (node.attrs.has("value_floats")) {
      tensor = vector_of(DType::f32, std::get<std::vector<double>>(*node.attrs.find("value_floats")));
    } else {
      fail("node '{}' (Constant) has no value that is supported", node.name);
    }
    node.attrs = {};
    node.attrs.set("value", std::move(tensor));
  }

  const OpSet& ops_;
  TensorReader tensors_;
  std::unique_ptr<Graph> graph_;
  std::map<std::string, Value> values_;
  int opset_ = 0;
};

}  // namespace

std::unique_ptr<Graph> read_onnx(std::span<const char> bytes, const std::string& folder, const OpSet& ops,
                                 std::shared_ptr<const void> owner) {
  try {
    return Reader(ops, folder, std::move(owner)).read(bytes);
  } catch (const protozero::exception& error) {
    fail("the file is no valid protobuf message: {}", error.what());
  }
}

std::unique_ptr<Graph> read_onnx_file(const std::string& path, const OpSet& ops) {
  const auto file = MappedFile::open(path);
  try {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return read_onnx(file->bytes(), folder.empty() ? "." : folder, ops, file);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace ort
