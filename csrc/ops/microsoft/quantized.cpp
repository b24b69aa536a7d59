// What onnxruntime's quantizers write: ops of quantised tensors, each its float op between scales.
#include "csrc/ops/quantized/linear.h"

namespace ort::microsoft {
namespace {

using namespace quantized;

constexpr TypeSet kScaleFloat = bit(DType::f32);
constexpr TypeSet kScaleTypes = bit(DType::f32) | bit(DType::f16);

// Inputs `at`, `at + 1` and `at + 2`: a tensor, its scale and its zero point, as float32.
Value read(const OpCall& c, size_t at) {
  return centred(c.x(at), c.x(at + 2), DType::f32) * reshape(c.x(at + 1), {});
}

// y with the scale and zero point that are inputs `at` and `at + 1`.
Value write(const OpCall& c, Value y, size_t at, DType dtype) {
  return saturated(y / reshape(c.x(at), {}), c.x(at + 1), dtype);
}

// An operand: the tensor, its scale, and its zero point where `known` says that it is there.
OpSchema& quantized_input(OpSchema& schema, const std::string& name, bool known = false) {
  schema.in(name, kBytes).in(name + "_scale", kScaleFloat, "S");
  return known ? schema.in(name + "_zero_point", kBytes)
               : schema.in_optional(name + "_zero_point", kBytes);
}

OpSchema& quantized_output(OpSchema& schema, const std::string& name) {
  return schema.in(name + "_scale", kScaleFloat, "S")
      .in_optional(name + "_zero_point", kBytes)
      .out(name, kBytes)
      .not_differentiable();
}

// --- of one operand ------------------------------------------------------------------------------

// `op` of x with the node's attributes, those of ai.onnx.
Value with_attrs(const OpCall& c, std::string_view op, std::vector<Value> in) {
  Attrs attrs = c.attrs();
  const bool last = attrs.i("channels_last", 0) != 0;
  attrs.erase("channels_last");
  if (last) in[0] = channels_first(in[0]);
  const Value y = c.graph().emit(op, in, attrs, 1)[0];
  return last ? channels_last(y) : y;
}

// Of opset 12 and before, over all axes from `axis` on.
Value old_softmax(Value x, int64_t axis) {
  const Value rows = x.graph->emit1("Flatten", {x}, {{"axis", axis}});
  return reshape(softmax(rows, -1), x.dims());
}

Value linear_softmax(const OpCall& c) {
  const Value x = read(c, 0);
  const int64_t axis = c.attrs().i("axis");
  const Value y = c.attrs().i("opset") < 13 ? old_softmax(x, axis) : softmax(x, axis);
  return write(c, y, 3, c.x(0).dtype());
}

Value linear_mean(const OpCall& c) {
  const bool keep = c.attrs().i("keepdims") != 0;
  return write(c, reduce_mean(read(c, 0), c.attrs().ints("axes"), keep), 3, c.x(0).dtype());
}

OpSchema& pool_attrs(OpSchema& schema) {
  return schema.attr("auto_pad", std::string("NOTSET"))
      .attr("ceil_mode", int64_t{0})
      .attr_required("kernel_shape")
      .attr_optional("pads")
      .attr_optional("strides");
}

void register_unary(OpSet& ops) {
  const auto op = [&](const char* name, const char* x = "X", const char* y = "Y") -> OpSchema& {
    return quantized_output(quantized_input(ops.op(name), x), y);
  };
  op("com.microsoft::QLinearSigmoid").defined_as([](const OpCall& c) {
    return write(c, sigmoid(read(c, 0)), 3, c.x(0).dtype());
  });
  op("com.microsoft::QLinearLeakyRelu").attr("alpha", 0.01).defined_as([](const OpCall& c) {
    return write(c, with_attrs(c, "LeakyRelu", {read(c, 0)}), 3, c.x(0).dtype());
  });
  op("com.microsoft::QLinearSoftmax")
      .attr("axis", int64_t{-1})
      .attr_required("opset")
      .defined_as(linear_softmax);
  op("com.microsoft::QLinearReduceMean", "data", "reduced")
      .attr_required("axes")
      .attr_required("keepdims")
      .defined_as(linear_mean);
  op("com.microsoft::QLinearGlobalAveragePool")
      .attr("channels_last", int64_t{0})
      .defined_as([](const OpCall& c) {
        return write(c, with_attrs(c, "GlobalAveragePool", {read(c, 0)}), 3, c.x(0).dtype());
      });
  pool_attrs(op("com.microsoft::QLinearAveragePool"))
      .attr("channels_last", int64_t{0})
      .attr("count_include_pad", int64_t{0})
      .defined_as([](const OpCall& c) {
        return write(c, with_attrs(c, "AveragePool", {read(c, 0)}), 3, c.x(0).dtype());
      });
  pool_attrs(ops.op("com.microsoft::NhwcMaxPool").in("x", kBytes).out("y"))
      .attr_optional("dilations")
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        return channels_last(c.graph().emit1("MaxPool", {channels_first(c.x(0))}, c.attrs()));
      });
}

// --- of several operands -------------------------------------------------------------------------

// y_scale, y_zero_point, then (x, scale, zero_point) each.
Value linear_concat(const OpCall& c) {
  const size_t count = c.count();
  check(count > 2 && (count - 2) % 3 == 0,
        "[QLinearConcat] it has {} inputs, expected two and then three of each tensor", count);
  std::vector<Value> parts;
  for (size_t i = 2; i < count; i += 3) parts.push_back(read(c, i));
  return write(c, concat(parts, c.attrs().i("axis")), 0, c.x(1).dtype());
}

void register_several(OpSet& ops) {
  const auto binary = [&](const char* name) -> OpSchema& {
    return quantized_output(quantized_input(quantized_input(ops.op(name), "A"), "B"), "C");
  };
  binary("com.microsoft::QLinearAdd").defined_as([](const OpCall& c) {
    return write(c, read(c, 0) + read(c, 3), 6, c.x(0).dtype());
  });
  binary("com.microsoft::QLinearMul").defined_as([](const OpCall& c) {
    return write(c, read(c, 0) * read(c, 3), 6, c.x(0).dtype());
  });
  OpSchema& chosen = ops.op("com.microsoft::QLinearWhere").in("condition", kBool, "B");
  quantized_output(quantized_input(quantized_input(chosen, "X", true), "Y", true), "Z")
      .defined_as([](const OpCall& c) {
        return write(c, where(c.x(0), read(c, 1), read(c, 4)), 7, c.x(1).dtype());
      });
  ops.op("com.microsoft::QLinearConcat")
      .in("Y_scale", kScaleFloat, "S")
      .in("Y_zero_point", kBytes)
      .in_variadic("inputs", kBytes | kScaleFloat, "")
      .out("Y", kBytes)
      .attr_required("axis")
      .not_differentiable()
      .defined_as(linear_concat);
}

// --- those that ai.onnx has too ------------------------------------------------------------------

void register_known(OpSet& ops) {
  const TypeSet narrow =
      kBytes | bit(DType::i16) | bit(DType::u16) | bit(DType::i4) | bit(DType::u4);
  ops.op("com.microsoft::QuantizeLinear")
      .in("x", kScaleTypes, "F")
      .in("y_scale", kScaleTypes, "F")
      .in_optional("y_zero_point", narrow, "Y")
      .out("y", narrow, "Y")
      .attr("axis", int64_t{1})
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        return c.graph().emit1("QuantizeLinear", {c.x(0), c.x(1), c.x(2)}, c.attrs());
      });
  ops.op("com.microsoft::DequantizeLinear")
      .in("x", narrow | bit(DType::i32), "X")
      .in("x_scale", kScaleTypes, "F")
      .in_optional("x_zero_point", narrow | bit(DType::i32), "X")
      .out("y", kScaleTypes, "F")
      .attr("axis", int64_t{1})
      .defined_as([](const OpCall& c) {
        return c.graph().emit1("DequantizeLinear", {c.x(0), c.x(1), c.x(2)}, c.attrs());
      });
  ops.op("com.microsoft::QLinearConv")
      .in("x", kBytes, "X")
      .in("x_scale", kScaleFloat, "S")
      .in("x_zero_point", kBytes, "X")
      .in("w", kBytes, "W")
      .in("w_scale", kScaleFloat, "S")
      .in("w_zero_point", kBytes, "W")
      .in("y_scale", kScaleFloat, "S")
      .in("y_zero_point", kBytes, "Y")
      .in_optional("B", bit(DType::i32), "B")
      .out("y", kBytes, "Y")
      .attr("auto_pad", std::string("NOTSET"))
      .attr("channels_last", int64_t{0})
      .attr_optional("dilations")
      .attr("group", int64_t{1})
      .attr_optional("kernel_shape")
      .attr_optional("pads")
      .attr_optional("strides")
      .not_differentiable()
      .defined_as([](const OpCall& c) {
        std::vector<Value> in;
        for (size_t i = 0; i < 9; ++i) in.push_back(c.x(i));
        return with_attrs(c, "QLinearConv", in);
      });
}

}  // namespace

static void register_quantized(OpSet& ops) {
  register_unary(ops);
  register_several(ops);
  register_known(ops);
}

const Family<OpSet> kQuantizedOps("ops", "microsoft_quantized", register_quantized);

}  // namespace ort::microsoft
