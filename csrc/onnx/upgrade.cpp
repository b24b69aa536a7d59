// The upgrade table: ops that an older opset, or ONNX beside it, spells otherwise.
#include "csrc/onnx/upgrade.h"

#include <algorithm>

#include "csrc/onnx/edits.h"

namespace ort {
namespace {

using namespace edits;

// Files of opset `from` and later, but before `to`, need this edit; then they are as those of `to`.
struct Row {
  std::string_view ops;  // separated by spaces
  int from, to;
  void (*edit)(OldNode&);
};

constexpr int kAlways = 1 << 20;  // at every opset

constexpr Row kRows[] = {
    // Only the hint which inputs may be overwritten went; it is dropped for every op.
    {"Abs Ceil Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Neg Reciprocal Relu "
     "Sigmoid Sqrt Tanh",
     1, 6, same},
    {"Acos Asin Atan Cos Sin Tan", 1, 7, same},
    {"Acosh Asinh Atanh Cosh Sinh Sign Erf", 1, 9, same},
    // Only more dtypes, axes that count from the end, or attributes whose default says the same.
    {"ArgMax ArgMin DepthToSpace MeanVarianceNormalization Shape Size SpaceToDepth", 1, 13, same},
    {"AveragePool", 1, 7, same},
    {"CumSum", 11, 14, same},
    {"Flatten MatMul", 1, 9, same},
    {"Gather", 1, 11, same},
    {"GatherND", 11, 12, same},
    {"LpPool GlobalLpPool", 1, 2, p_as_integer},
    {"Max Min Mean MaxPool Sum", 1, 8, same},
    {"NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", 12, 13, same},
    // A second operand that is laid along an axis of the first.
    {"Add And Div Mul Or Sub Xor", 1, 7, broadcast_from_axis},
    {"Equal", 1, 7, broadcast_from_axis},
    {"Equal", 7, 11, same},
    {"Greater Less", 1, 7, broadcast_from_axis},
    {"Greater Less", 7, 9, same},
    {"Pow", 1, 7, broadcast_from_axis},
    {"Pow", 7, 12, same},
    {"PRelu", 1, 7, slope_of_channels},
    {"PRelu", 7, 9, same},
    {"Gemm", 1, 7, without_broadcast},
    {"Gemm", 7, 9, same},
    // Attributes that became inputs.
    {"Clip", 1, 11, bounds_as_inputs},
    {"Clip", 11, 12, same},
    {"DFT", 17, 20, axis_1_as_input},
    {"Dropout", 1, 7, test_mode_as_input},
    {"Dropout", 7, 12, ratio_as_input},
    {"Pad", 1, 2, paddings_as_pads},
    {"Pad", 2, 11, pads_as_inputs},
    {"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
     "ReduceSumSquare",
     1, 18, axes_as_input},
    {"ReduceSum Squeeze Unsqueeze", 1, 13, axes_as_input},
    {"Reshape", 1, 5, shape_as_input},
    {"Slice", 1, 10, bounds_of_slice_as_inputs},
    {"Split", 1, 13, split_as_input},
    {"Split", 13, 18, equal_parts_by_number},
    {"Tile", 1, 6, tiles_as_repeats},
    {"TopK", 1, 10, k_as_input},
    {"TopK", 10, 11, same},
    // Other defaults, other names, other meanings.
    {"BatchNormalization", 1, 7, in_test_mode},
    {"BatchNormalization", 7, 14, over_channels},
    {"BatchNormalization", 14, kAlways, of_one_channel},
    {"Cast", 1, 6, dtype_by_number},
    {"Cast", 6, 9, same},
    {"Concat", 1, 4, axis_1},
    {"Concat", 4, 13, same},
    {"Constant", 1, kAlways, value_as_tensor},
    {"GridSample", 16, 20, mode_of_any_rank},
    {"GroupNormalization", 18, 21, scales_of_channels},
    {"Hardmax LogSoftmax Softmax", 1, 13, over_flattened},
    {"OneHot", 9, kAlways, indices_as_integers},
    {"GRU LSTM RNN", 1, 7, without_output_sequence},
    {"LayerNormalization", 1, 17, same},  // onnxruntime writes it into files of any opset
    {"Resize", 10, 11, as_resize},
    {"Resize", 11, 13, same},  // roi may be absent since then
    {"RoiAlign", 10, 16, without_half_pixel},
    {"Scan", 8, 9, scan_of_batches},
    {"Scatter", 9, kAlways, as_scatter_elements},
    {"Selu", 1, 6, old_selu_constants},
    {"SimplifiedLayerNormalization", 1, kAlways, as_rms_norm},  // onnxruntime's alone
    {"Upsample", 1, 7, scales_of_images},
    {"Upsample", 7, 9, scales_as_input},
    {"Upsample", 9, kAlways, as_resize},
    // Ops of onnxruntime's that became ai.onnx's.
    {"com.microsoft::GatherND com.microsoft::Gelu com.microsoft::Trilu", 1, kAlways, as_standard},
    {"com.microsoft::GridSample", 1, kAlways, as_grid_sample},
    {"com.microsoft::Range", 1, kAlways, as_range},
    {"com.microsoft::Unique", 1, kAlways, as_unique},
    {"ai.onnx.ml::LabelEncoder", 1, 2, classes_as_tables},
};

bool names(const Row& row, std::string_view op) {
  const size_t at = row.ops.find(op);
  if (at == std::string_view::npos) return false;
  for (size_t from = at; from != std::string_view::npos; from = row.ops.find(op, from + 1)) {
    const size_t end = from + op.size();
    if ((from == 0 || row.ops[from - 1] == ' ') && (end == row.ops.size() || row.ops[end] == ' '))
      return true;
  }
  return false;
}

const Row* row_of(std::string_view op, int opset) {
  for (const Row& row : kRows)
    if (row.from <= opset && opset < row.to && names(row, op)) return &row;
  return nullptr;
}

}  // namespace

bool has_upgrade(std::string_view op) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const Row& row) { return names(row, op); });
}

void upgrade(OldNode& node, const OpSet& ops) {
  if (node.opset < 6) node.attrs.erase("consumed_inputs");
  const std::string named = node.op;
  for (int opset = node.opset; opset < kAlways;) {
    const Row* row = row_of(named, opset);
    if (!row) break;
    node.opset = opset;
    row->edit(node);
    node.opset = opset = row->to;
  }
  const OpSchema* schema = ops.find(node.op);
  check(schema != nullptr, "op '{}' is read as '{}', which is not known", named, node.op);
  check(node.opset >= schema->since_opset(),
        "op '{}' has another meaning in opset {} than since opset {}", named, node.opset,
        schema->since_opset());
}

}  // namespace ort
