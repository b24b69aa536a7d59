// The upgrade table: ops that an older opset, or ONNX beside it, spells otherwise.
#include "csrc/graph/onnx_upgrade.h"

namespace ort {
namespace {

struct OldNode {
  int opset;
  Graph& graph;
  std::vector<Value>& in;
  Attrs& attrs;
};
using Upgrade = void (*)(OldNode&);

Tensor tensor_of(const Attrs& attrs) {
  if (attrs.has("value_float")) return Tensor::scalar(DType::f32, attrs.f("value_float"));
  if (attrs.has("value_ints")) return Tensor::of(attrs.ints("value_ints"));
  if (attrs.has("value_int")) {
    Tensor tensor = Tensor::of({attrs.i("value_int")});
    tensor.sizes.clear();
    return tensor;
  }
  check(attrs.has("value_floats"), "[Constant] it has no value that is supported");
  const auto& values = std::get<std::vector<double>>(*attrs.find("value_floats"));
  Tensor tensor = Tensor::empty(DType::f32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    set_element(tensor, static_cast<int64_t>(i), values[i]);
  return tensor;
}

void value_as_tensor(OldNode& node) {
  if (node.attrs.has("value")) return;
  Tensor tensor = tensor_of(node.attrs);
  node.attrs = {};
  node.attrs.set("value", std::move(tensor));
}

// Before opset 18 (ReduceSum, Squeeze, Unsqueeze: 13) the axes are an attribute.
void axes_as_input(OldNode& node) {
  if (node.opset >= 18 || !node.attrs.has("axes")) return;
  node.in.resize(2);
  node.in[1] = node.graph.ints(node.attrs.ints("axes"));
  node.attrs.erase("axes");
}

void nothing(OldNode&) {}

// Ops here mean in every opset that is read what they mean in kOpset.
const std::map<std::string, Upgrade, std::less<>>& table() {
  static const auto* table = new std::map<std::string, Upgrade, std::less<>>{
      {"BatchNormalization", nothing}, {"Constant", value_as_tensor},
      {"ReduceL1", axes_as_input},     {"ReduceL2", axes_as_input},
      {"ReduceLogSum", axes_as_input}, {"ReduceLogSumExp", axes_as_input},
      {"ReduceMax", axes_as_input},    {"ReduceMean", axes_as_input},
      {"ReduceMin", axes_as_input},    {"ReduceProd", axes_as_input},
      {"ReduceSum", axes_as_input},    {"ReduceSumSquare", axes_as_input},
      {"Squeeze", axes_as_input},      {"Unsqueeze", axes_as_input},
  };
  return *table;
}

}  // namespace

void upgrade(const OpSchema& schema, int opset, Graph& graph, std::vector<Value>& in,
             Attrs& attrs) {
  const auto found = table().find(schema.qualified());
  if (found == table().end()) {
    check(opset >= schema.since_opset(),
          "op '{}' has another meaning in opset {} than since opset {}", schema.qualified(), opset,
          schema.since_opset());
    return;
  }
  OldNode node{opset, graph, in, attrs};
  found->second(node);
}

}  // namespace ort
