// A model for each operator whose attributes or operands are numbers: axes, bounds, counts, pads.
#pragma once

#include <string>
#include <vector>

#include "csrc/onnx/onnx.h"
#include "csrc/ops/ops.h"

namespace seeds {

using ort::DType, ort::Dim, ort::Graph, ort::Type, ort::Value;
using Ints = std::vector<int64_t>;

// One operator over x float32[n, 4] or an image float32[1, 4, h, 4], and constants of int64.
struct Seed {
  std::string op;
  ort::Attrs attrs;
  std::vector<Ints> operands = {};
  bool image = false;
  size_t outputs = 1;
  bool reads_x = true;
};

inline std::string model_of(const Seed& seed) {
  Graph graph(ort::default_ops());
  const ort::Dims rows{Dim::symbol("n"), 4}, image{1, 4, Dim::symbol("h"), 4};
  std::vector<Value> in;
  const Value x = graph.input("x", Type::tensor(DType::f32, seed.image ? image : rows));
  if (seed.reads_x) in.push_back(x);
  for (const Ints& numbers : seed.operands) in.push_back(graph.ints(numbers));
  for (const Value& y : graph.emit(seed.op, in, seed.attrs, seed.outputs))
    graph.output(y, "y" + std::to_string(graph.outputs().size()));
  return ort::write_onnx(graph);
}

inline std::vector<Seed> of_rows() {
  return {
      {"Slice", {}, {{0}, {2}, {1}, {1}}},
      {"Slice", {}, {{3, -1}, {-5, -4}, {0, 1}, {-1, -2}}},
      {"Pad", {{"mode", std::string("constant")}}, {{0, 1, 0, 2}}},
      {"Pad", {{"mode", std::string("reflect")}}, {{0, 1, 0, 1}}},
      {"Pad", {{"mode", std::string("wrap")}}, {{0, 1, 0, -1}}},
      {"Reshape", {{"allowzero", int64_t{0}}}, {{2, -1}}},
      {"Expand", {}, {{3, 1, 4}}},
      {"Tile", {}, {{2, 3}}},
      {"Unsqueeze", {}, {{0, -1}}},
      {"Split", {{"axis", int64_t{1}}}, {{1, 3}}, false, 2},
      {"Split", {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}, {}, false, 3},
      {"TopK", {{"axis", int64_t{-1}}, {"largest", int64_t{1}}}, {{2}}, false, 2},
      {"Gather", {{"axis", int64_t{1}}}, {{0, -1, 3}}},
      {"ReduceSum", {{"keepdims", int64_t{1}}}, {{0, -1}}},
      {"ReduceMax", {{"keepdims", int64_t{0}}}, {{1}}},
      {"ReduceLogSumExp", {{"keepdims", int64_t{0}}}, {{-1}}},
      {"ArgMax", {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}, {}},
      {"Softmax", {{"axis", int64_t{-1}}}, {}},
      {"Hardmax", {{"axis", int64_t{0}}}, {}},
      {"ReverseSequence", {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}}, {{1, 2, 2, 1}}},
      {"GatherND", {{"batch_dims", int64_t{0}}}, {{0}}},
      {"Squeeze", {}, {{0}}, true},
      {"LpNormalization", {{"axis", int64_t{-1}}, {"p", int64_t{2}}}, {}},
      {"Flatten", {{"axis", int64_t{1}}}, {}},
      {"Transpose", {{"perm", Ints{1, 0}}}, {}},
      {"Trilu", {{"upper", int64_t{1}}}, {}},
      {"EyeLike", {{"k", int64_t{-1}}}, {}},
      {"Shape", {{"start", int64_t{-2}}, {"end", int64_t{2}}}, {}},
      {"Cast", {{"to", int64_t{7}}}, {}},
      {"Concat", {{"axis", int64_t{0}}}, {{1, 2}, {3}}, false, 1, false},
      {"ConstantOfShape", {}, {{2, 3}}, false, 1, false},
      {"Div", {}, {{7, -9}, {2, -1}}, false, 1, false},
      {"Mod", {{"fmod", int64_t{0}}}, {{7, -9}, {2, -1}}, false, 1, false},
      {"Pow", {}, {{7, -9}, {2, 3}}, false, 1, false},
      {"Mul", {}, {{7, -9}, {2, 3}}, false, 1, false},
  };
}

inline std::vector<Seed> of_images() {
  return {
      {"DepthToSpace", {{"blocksize", int64_t{2}}}, {}, true},
      {"SpaceToDepth", {{"blocksize", int64_t{2}}}, {}, true},
      {"LRN", {{"size", int64_t{3}}}, {}, true},
      {"MeanVarianceNormalization", {{"axes", Ints{0, 2, 3}}}, {}, true},
      {"MaxPool",
       {{"kernel_shape", Ints{2, 1}},
        {"pads", Ints{1, 0, 0, 0}},
        {"strides", Ints{1, 2}},
        {"dilations", Ints{1, 2}},
        {"ceil_mode", int64_t{1}},
        {"storage_order", int64_t{0}}},
       {},
       true,
       2},
      {"AveragePool",
       {{"kernel_shape", Ints{2, 2}},
        {"pads", Ints{1, 0, 1, 1}},
        {"strides", Ints{2, 1}},
        {"count_include_pad", int64_t{1}}},
       {},
       true},
      {"MaxPool",
       {{"kernel_shape", Ints{2, 2}},
        {"auto_pad", std::string("SAME_LOWER")},
        {"strides", Ints{2, 3}}},
       {},
       true},
  };
}

inline std::vector<std::string> models() {
  std::vector<std::string> result;
  for (const auto& seeds : {of_rows(), of_images()})
    for (const Seed& seed : seeds) result.push_back(model_of(seed));
  return result;
}

}  // namespace seeds
