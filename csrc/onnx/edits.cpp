// Attributes that became inputs, and other values and names of what means the same.
#include "csrc/onnx/edits.h"

#include <algorithm>

namespace ort::edits {
namespace {

// The list of an attribute as an input, where it is there.
void list_as_input(OldNode& node, const char* name, size_t input) {
  if (!node.attrs.has(name)) return;
  if (node.in.size() <= input) node.in.resize(input + 1);
  node.in[input] = node.graph->ints(node.attrs.ints(name));
  node.attrs.erase(name);
}

void number_as_input(OldNode& node, const char* name, size_t input, double otherwise) {
  if (node.in.size() <= input) node.in.resize(input + 1);
  node.in[input] = node.graph->scalar(node.attrs.f(name, otherwise), node.in.at(0).dtype());
  node.attrs.erase(name);
}

Tensor floats_of(const std::vector<double>& values) {
  Tensor tensor = Tensor::empty(DType::f32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    set_element(tensor, static_cast<int64_t>(i), values[i]);
  return tensor;
}

Tensor tensor_of(const Attrs& attrs) {
  if (attrs.has("value_float")) return Tensor::scalar(DType::f32, attrs.f("value_float"));
  if (attrs.has("value_ints")) return Tensor::of(attrs.ints("value_ints"));
  if (attrs.has("value_int")) {
    Tensor tensor = Tensor::of({attrs.i("value_int")});
    tensor.sizes.clear();
    return tensor;
  }
  if (attrs.has("value_string")) return Tensor::of_strings({attrs.s("value_string")}, {});
  if (const Attr* texts = attrs.find("value_strings")) {
    const auto& all = std::get<std::vector<std::string>>(*texts);
    return Tensor::of_strings(all, {static_cast<int64_t>(all.size())});
  }
  if (const Attr* sparse = attrs.find("sparse_value")) return std::get<Tensor>(*sparse);
  check(attrs.has("value_floats"), "[Constant] it has no value that is supported");
  return floats_of(std::get<std::vector<double>>(*attrs.find("value_floats")));
}

}  // namespace

void same(OldNode&) {}

void value_as_tensor(OldNode& node) {
  if (node.attrs.has("value")) return;
  Tensor tensor = tensor_of(node.attrs);
  node.attrs = {};
  node.attrs.set("value", std::move(tensor));
}

void axes_as_input(OldNode& node) {
  list_as_input(node, "axes", 1);
}

// Before opset 6 a bound that is not given is none, then the largest float32 that there is.
void bounds_as_inputs(OldNode& node) {
  check(!node.in.empty() && node.in[0], "[Clip] it has no input");
  if (node.attrs.has("min")) number_as_input(node, "min", 1, 0);
  if (node.attrs.has("max")) number_as_input(node, "max", 2, 0);
}

void p_as_integer(OldNode& node) {
  const Attr* p = node.attrs.find("p");
  if (!p) return;
  const auto given = std::get<double>(*p);
  const auto whole = static_cast<int64_t>(given >= 1 && given < 1e6 ? given : 0);
  check(static_cast<double>(whole) == given, "[{}] p is {}, expected a whole number from 1 on",
        node.op, given);
  node.attrs.set("p", whole);
}

void paddings_as_pads(OldNode& node) {
  check(node.attrs.has("paddings"), "[Pad] attribute 'paddings' is missing");
  node.attrs.set("pads", *node.attrs.find("paddings"));
  node.attrs.erase("paddings");
}

void pads_as_inputs(OldNode& node) {
  check(node.attrs.has("pads") && !node.in.empty() && node.in[0],
        "[Pad] it has no input or no attribute 'pads'");
  list_as_input(node, "pads", 1);
  number_as_input(node, "value", 2, 0);
}

void shape_as_input(OldNode& node) {
  check(node.attrs.has("shape"), "[Reshape] attribute 'shape' is missing");
  list_as_input(node, "shape", 1);
}

void bounds_of_slice_as_inputs(OldNode& node) {
  check(node.attrs.has("starts") && node.attrs.has("ends"),
        "[Slice] attribute 'starts' or 'ends' is missing");
  list_as_input(node, "starts", 1);
  list_as_input(node, "ends", 2);
  list_as_input(node, "axes", 3);
}

void split_as_input(OldNode& node) {
  list_as_input(node, "split", 1);
}

// Without sizes their number is said, where it was that of the results.
void equal_parts_by_number(OldNode& node) {
  if (node.in.size() < 2 || !node.in[1])
    node.attrs.set("num_outputs", static_cast<int64_t>(node.outputs));
}

// tiles and axis, two numbers, become a number for each axis.
void tiles_as_repeats(OldNode& node) {
  const auto tiles = node.in.size() > 1 ? scalar_of(node.in[1]) : std::nullopt;
  const auto axis = node.in.size() > 2 ? scalar_of(node.in[2]) : std::nullopt;
  const bool ranked = !node.in.empty() && node.in[0] && node.in[0].type().dims;
  check(tiles && axis && ranked,
        "[Tile] tiles, axis or the rank of its input is not known, which opset {} needs",
        node.opset);
  std::vector<int64_t> repeats(node.in[0].type().dims->size(), 1);
  const bool fits = *axis >= 0 && *axis < static_cast<double>(repeats.size());
  check(fits, "[Tile] axis {} does not exist, the input has rank {}", *axis, repeats.size());
  repeats[static_cast<size_t>(*axis)] = static_cast<int64_t>(*tiles);
  node.in = {node.in[0], node.graph->ints(repeats)};
}

void k_as_input(OldNode& node) {
  check(node.attrs.has("k"), "[TopK] attribute 'k' is missing");
  node.in.resize(2);
  node.in[1] = node.graph->ints({node.attrs.i("k")});
  node.attrs.erase("k");
}

// "FLOAT16" and the like, as TensorProto.DataType has them.
void dtype_by_number(OldNode& node) {
  constexpr std::string_view kNames[] = {
      "UNDEFINED", "FLOAT", "UINT8",   "INT8",   "UINT16", "INT16",  "INT32",     "INT64",
      "STRING",    "BOOL",  "FLOAT16", "DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"};
  const std::string name = node.attrs.s("to");
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  check(found != std::end(kNames) && name != kNames[0],
        "[Cast] attribute 'to' is '{}', which is no dtype", name);
  node.attrs.set("to", static_cast<int64_t>(found - std::begin(kNames)));
}

void axis_1(OldNode& node) {
  if (!node.attrs.has("axis")) node.attrs.set("axis", int64_t{1});
}

void old_selu_constants(OldNode& node) {
  if (!node.attrs.has("alpha")) node.attrs.set("alpha", 1.6732);
  if (!node.attrs.has("gamma")) node.attrs.set("gamma", 1.0507);
}

// The third operand always broadcasts: where it did not, it has the shape of the result.
void without_broadcast(OldNode& node) {
  node.attrs.erase("broadcast");
}

void without_output_sequence(OldNode& node) {
  node.attrs.erase("output_sequence");
}

void as_scatter_elements(OldNode& node) {
  node.op = "ScatterElements";
}

void scales_of_images(OldNode& node) {
  check(node.attrs.has("height_scale") && node.attrs.has("width_scale"),
        "[Upsample] attribute 'height_scale' or 'width_scale' is missing");
  node.attrs.set("scales", std::vector<double>{1, 1, node.attrs.f("height_scale"),
                                               node.attrs.f("width_scale")});
  node.attrs.erase("height_scale");
  node.attrs.erase("width_scale");
  if (node.attrs.s("mode", "nearest") == "bilinear") node.attrs.set("mode", std::string("linear"));
}

void scales_as_input(OldNode& node) {
  const Attr* scales = node.attrs.find("scales");
  check(scales != nullptr, "[Upsample] attribute 'scales' is missing");
  node.in.resize(2);
  node.in[1] = node.graph->constant(floats_of(std::get<std::vector<double>>(*scales)));
  node.attrs.erase("scales");
}

// Its places lie where a Resize with these words has them.
void as_resize(OldNode& node) {
  check(node.in.size() == 2, "[{}] it has {} inputs, expected 2", node.op, node.in.size());
  node.op = "Resize";
  node.in = {node.in[0], Value{}, node.in[1]};
  node.attrs.set("coordinate_transformation_mode", std::string("asymmetric"));
  node.attrs.set("nearest_mode", std::string("floor"));
}

// Its name without the domain.
void as_standard(OldNode& node) {
  node.op = node.op.substr(node.op.find("::") + 2);
}

void as_grid_sample(OldNode& node) {
  as_standard(node);
  mode_of_any_rank(node);
}

// In the order in which they come; it has no indices of the first ones.
void as_unique(OldNode& node) {
  as_standard(node);
  check(node.outputs <= 3, "[Unique] it has {} outputs, expected up to 3", node.outputs);
  node.attrs.set("sorted", int64_t{0});
  node.outputs = 4;
  node.finish = [](std::vector<Value>& out) { out.erase(out.begin() + 1); };
}

// A step that is not given is 1.
void as_range(OldNode& node) {
  as_standard(node);
  check(!node.in.empty() && node.in[0], "[Range] input 0 is missing");
  node.in.resize(3);
  if (!node.in[2]) node.in[2] = node.graph->scalar(1, node.in[0].dtype());
}

void mode_of_any_rank(OldNode& node) {
  const std::string mode = node.attrs.s("mode", "bilinear");
  if (mode == "bilinear") node.attrs.set("mode", std::string("linear"));
  if (mode == "bicubic") node.attrs.set("mode", std::string("cubic"));
}

void axis_1_as_input(OldNode& node) {
  node.in.resize(3);
  node.in[2] = node.graph->scalar(node.attrs.i("axis", 1), DType::i64);
  node.attrs.erase("axis");
}

void without_half_pixel(OldNode& node) {
  node.attrs.set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

// One list of strings, whose other side is their positions.
void classes_as_tables(OldNode& node) {
  const Attr* given = node.attrs.find("classes_strings");
  check(given && std::holds_alternative<std::vector<std::string>>(*given),
        "[{}] it has no classes_strings", node.op);
  const auto classes = std::get<std::vector<std::string>>(*given);
  std::vector<int64_t> positions;
  for (size_t i = 0; i < classes.size(); ++i) positions.push_back(static_cast<int64_t>(i));
  const bool named = !node.in.empty() && node.in[0] && node.in[0].dtype() == DType::string;
  node.attrs.set(named ? "keys_strings" : "values_strings", classes);
  node.attrs.set(named ? "values_int64s" : "keys_int64s", positions);
  node.attrs.erase("classes_strings");
}

}  // namespace ort::edits
