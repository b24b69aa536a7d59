// What meant something else in an older opset, said with nodes around it.
#include <algorithm>

#include "csrc/graph/expr.h"
#include "csrc/onnx/edits.h"

namespace ort::edits {
namespace {

bool ranked(Value value) {
  return value && value.type().is_tensor() && value.type().dims;
}

void expect_inputs(const OldNode& node, size_t count) {
  for (size_t i = 0; i < count; ++i)
    check(i < node.in.size() && node.in[i], "[{}] input {} is missing", node.op, i);
}

}  // namespace

// The second operand's first axis lies on axis `axis` of the first; without `axis` their last axes
// lie on each other, as now.
void broadcast_from_axis(OldNode& node) {
  const bool lies = node.attrs.i("broadcast", 0) != 0 && node.attrs.has("axis");
  const int64_t axis = node.attrs.i("axis", 0);
  node.attrs.erase("broadcast");
  node.attrs.erase("axis");
  if (!lies) return;
  expect_inputs(node, 2);
  check(ranked(node.in[0]) && ranked(node.in[1]),
        "[{}] attribute 'axis' of opset {} needs operands of known rank", node.op, node.opset);
  const int64_t a = node.in[0].rank(), b = node.in[1].rank(), first = axis < 0 ? axis + a : axis;
  check(first >= 0 && first + b <= a, "[{}] axis {} does not lay rank {} on rank {}", node.op, axis,
        b, a);
  std::vector<int64_t> after;
  for (int64_t i = b; i < a - first; ++i) after.push_back(i);
  if (!after.empty()) node.in[1] = unsqueeze(node.in[1], after);
}

// A slope for each channel, which are axis 1.
void slope_of_channels(OldNode& node) {
  expect_inputs(node, 2);
  check(ranked(node.in[0]) && ranked(node.in[1]), "[PRelu] opset {} needs operands of known rank",
        node.opset);
  if (node.in[1].rank() != 1) return;
  std::vector<int64_t> after;
  for (int64_t i = 1; i < node.in[0].rank() - 1; ++i) after.push_back(i);
  if (!after.empty()) node.in[1] = unsqueeze(node.in[1], after);
}

void test_mode_as_input(OldNode& node) {
  expect_inputs(node, 1);
  const bool training = node.attrs.i("is_test", 0) == 0;
  node.attrs.erase("is_test");
  node.in.resize(3);
  node.in[2] = node.graph->scalar(training ? 1 : 0, DType::boolean);
}

// The mask was of the input's dtype before it became one of bools.
void ratio_as_input(OldNode& node) {
  expect_inputs(node, 1);
  node.in.resize(std::max<size_t>(node.in.size(), 2));
  node.in[1] = node.graph->scalar(node.attrs.f("ratio", 0.5), DType::f32);
  node.attrs.erase("ratio");
  if (node.opset >= 10 || node.outputs < 2) return;
  const DType dtype = node.in[0].dtype();
  node.finish = [dtype](std::vector<Value>& out) { out[1] = cast(out[1], dtype); };
}

// Indices and depth are integers, whatever dtype says them.
void indices_as_integers(OldNode& node) {
  expect_inputs(node, 2);
  for (const size_t i : {size_t{0}, size_t{1}})
    if (const DType dtype = node.in[i].dtype(); dtype != DType::i64 && dtype != DType::i32)
      node.in[i] = cast(node.in[i], DType::i64);
}

void in_test_mode(OldNode& node) {
  check(node.attrs.i("is_test", 0) != 0,
        "[BatchNormalization] is_test is 0: training in opset {} is not supported", node.opset);
  node.attrs.erase("is_test");
}

void over_channels(OldNode& node) {
  check(node.attrs.i("spatial", 1) != 0,
        "[BatchNormalization] spatial is 0: numbers for each place are not supported");
  check(node.outputs == 1,
        "[BatchNormalization] it has {} outputs: training in opset {} is not supported",
        node.outputs, node.opset);
  node.attrs.erase("spatial");
}

// x of one axis has images of one channel.
void of_one_channel(OldNode& node) {
  expect_inputs(node, 1);
  if (!ranked(node.in[0]) || node.in[0].rank() != 1) return;
  node.in[0] = unsqueeze(node.in[0], {1});
  node.finish = [](std::vector<Value>& out) { out[0] = squeeze(out[0], {1}); };
}

// Numbers for each group become numbers for each channel.
void scales_of_channels(OldNode& node) {
  expect_inputs(node, 3);
  check(node.attrs.has("num_groups"), "[GroupNormalization] attribute 'num_groups' is missing");
  const int64_t groups = node.attrs.i("num_groups");
  check(groups > 0, "[GroupNormalization] num_groups is {}", groups);
  Graph& g = *node.graph;
  const Value channels =
      g.emit1("Shape", {node.in[0]}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const Value shape = concat({g.ints({1}), channels / g.ints({groups})}, 0);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const Value rows = g.emit1("Expand", {unsqueeze(node.in[i], {1}), shape});
    node.in[i] = g.emit1("Reshape", {rows, channels});
  }
}

// All axes from `axis` on are one.
void over_flattened(OldNode& node) {
  expect_inputs(node, 1);
  const Value x = node.in[0];
  const int64_t axis = node.attrs.i("axis", 1);
  node.attrs.set("axis", int64_t{-1});
  check(node.outputs == 1, "[{}] it has {} outputs, expected 1", node.op, node.outputs);
  if (ranked(x) && (axis == -1 || axis == x.rank() - 1)) return;
  node.in[0] = node.graph->emit1("Flatten", {x}, {{"axis", axis}});
  node.finish = [x](std::vector<Value>& out) {
    const Value shape = x.graph->emit1("Shape", {x});
    out[0] = x.graph->emit1("Reshape", {out[0], shape}, {{"allowzero", int64_t{1}}});
  };
}

// A second result is the reciprocal of each row's root mean square.
void as_rms_norm(OldNode& node) {
  expect_inputs(node, 2);
  node.op = "RMSNormalization";
  if (node.outputs < 2) return;
  node.outputs = 1;
  const Value x = node.in[0];
  check(ranked(x), "[SimplifiedLayerNormalization] its second result needs X of known rank");
  const int64_t rank = x.rank(), given = node.attrs.i("axis", -1);
  check(given >= -rank && given < rank, "[SimplifiedLayerNormalization] axis {} does not exist",
        given);
  std::vector<int64_t> axes;
  for (int64_t axis = (given + rank) % rank; axis < rank; ++axis) axes.push_back(axis);
  const double epsilon = node.attrs.f("epsilon", 1e-5);
  node.finish = [x, axes, epsilon](std::vector<Value>& out) {
    const Value wide = cast(x, DType::f32);
    out.push_back(reciprocal(sqrt(reduce_mean(wide * wide, axes) + epsilon)));
  };
}

namespace {

// The type of one row along the first axis.
Type type_of_row(const Type& type) {
  Type row = type;
  if (row.dims && !row.dims->empty()) row.dims->erase(row.dims->begin());
  return row;
}

}  // namespace

// Each operand has an axis of batches first: a scan over them whose body is the scan of one.
void scan_of_batches(OldNode& node) {
  const size_t captures = static_cast<size_t>(node.attrs.i("captures", 0));
  check(node.bodies.size() == 1 && node.in.size() > captures, "[Scan] it has no body or no input");
  check(!node.in[0], "[Scan] sequence_lens of opset {} is not supported", node.opset);
  node.in.erase(node.in.begin());
  const size_t own = node.in.size() - captures;
  expect_inputs(node, own);
  auto outer = node.graph->new_body();
  std::vector<Value> in;
  for (size_t i = 0; i < node.in.size(); ++i) {
    const Type& type = node.in[i].type();
    in.push_back(outer->input(format("in{}", i), i < own ? type_of_row(type) : type));
    if (i >= own) outer->set_contents(in.back(), node.graph->contents(node.in[i].id));
  }
  Attrs attrs = node.attrs;
  if (const Attr* directions = attrs.find("directions")) {
    attrs.set("scan_input_directions", Attr(*directions));
    attrs.erase("directions");
  }
  const auto out =
      outer->emit("Scan", in, attrs, static_cast<int>(node.outputs), std::move(node.bodies));
  for (size_t i = 0; i < out.size(); ++i) outer->output(out[i], format("out{}", i));
  node.bodies.clear();
  node.bodies.emplace_back("body", std::move(outer));
  node.attrs = {{"num_scan_inputs", static_cast<int64_t>(own)},
                {"captures", static_cast<int64_t>(captures)}};
}

}  // namespace ort::edits
