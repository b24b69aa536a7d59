// Features made of features: chosen, scaled, filled in, laid side by side.
#include <algorithm>
#include <cmath>

#include "csrc/ops/ml/attributes.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

constexpr TypeSet kOut = bit(DType::f32);

// Elements of the last axis, by indices of any shape; a vector is a row.
Value chosen_features(const OpCall& c) {
  const Value x = c.x(0).rank() == 1 ? unsqueeze(c.x(0), {0}) : c.x(0);
  Dim count = 1;
  for (const Dim& size : c.x(1).dims()) count = count * size;
  check(x.rank() > 0, "X has no axis");
  return c.graph().emit1("Gather", {x, reshape(c.x(1), {count})}, {{"axis", int64_t{-1}}});
}

Value binarized(const OpCall& c) {
  const DType dtype = c.x().dtype();
  const Value x = is_floating(dtype) ? c.x() : cast(c.x(), DType::f64);
  return cast(x > c.attrs().f("threshold"), dtype);
}

Value floating(Value x) {
  return x.dtype() == DType::f64 ? x : cast(x, DType::f32);
}

// A list of one number, or of one for each feature, which is laid along the last axis.
Value along_features(Value x, Tensor values, std::string_view name) {
  const int64_t count = values.count();
  check(x.rank() >= 1, "X is one element, expected [.., F]");
  check(count == 1 || may_be_equal(x.dim(-1), count), "it has {} {}, X has {} features", count,
        name, x.dim(-1));
  return cast(x.graph->constant(std::move(values)), x.dtype());
}
Value along_features(Value x, const std::vector<double>& values, std::string_view name) {
  return along_features(x, tensor_of(values, {static_cast<int64_t>(values.size())}, x.dtype()),
                        name);
}

// (x - offset) scale
Value scaled(const OpCall& c) {
  Value x = floating(c.x());
  const auto &offset = floats(c.attrs(), "offset"), &scale = floats(c.attrs(), "scale");
  if (!offset.empty()) x = x - along_features(x, offset, "offset");
  if (!scale.empty()) x = x * along_features(x, scale, "scale");
  return cast(x, DType::f32);
}

// MAX is the largest magnitude, as in onnx's reference and scikit-learn; onnxruntime has the
// largest number.
Value normalized(const OpCall& c) {
  const Value x = floating(c.x());
  const std::string& norm = c.attrs().s("norm");
  check(norm == "MAX" || norm == "L1" || norm == "L2", "norm is '{}', expected MAX, L1 or L2",
        norm);
  check(x.rank() >= 1 && x.rank() <= 2, "X has shape {}, expected [N, F] or [F]", x.dims());
  const std::string op = norm == "MAX" ? "ReduceMax" : norm == "L1" ? "ReduceL1" : "ReduceL2";
  const Value size = reduce(op, norm == "MAX" ? abs(x) : x, {-1}, true);
  return cast(x / maximum(size, number(1e-30, size)), DType::f32);
}

// Elements that are the replaced value become the imputed one, or that of their feature.
Value imputed(const OpCall& c) {
  const Value x = c.x();
  const Attrs& attrs = c.attrs();
  const auto& numbers = floats(attrs, "imputed_value_floats");
  const auto& counts = integers(attrs, "imputed_value_int64s");
  check(numbers.empty() != counts.empty(),
        "it has {} imputed_value_floats and {} imputed_value_int64s, expected one of the two",
        numbers.size(), counts.size());
  check(is_floating(x.dtype()) == counts.empty(), "X is {}, the imputed values are {}", x.dtype(),
        counts.empty() ? "floats" : "int64s");
  if (!counts.empty()) {
    const Value replaced = cast(c.graph().ints({attrs.i("replaced_value_int64")}), x.dtype());
    return where(equal(x, replaced), along_features(x, Tensor::of(counts), "imputed values"), x);
  }
  const Value imputed = along_features(x, numbers, "imputed values");
  const double replaced = attrs.f("replaced_value_float");
  const Value missing = std::isnan(replaced) ? unary("IsNaN", x) : equal(x, number(replaced, x));
  return where(missing, imputed, x);
}

// Rows of features [N, F], as ONNX has them here: a vector is one row, of more axes all but the
// first one are features.
Value as_rows(Value x) {
  check(x.rank() > 0, "an input is one element, expected [N, F] or [F]");
  if (x.rank() == 1) return unsqueeze(x, {0});
  return x.rank() == 2 ? x : x.graph->emit1("Flatten", {x}, {{"axis", int64_t{1}}});
}

// The first features of each input, or all of them and zeros, side by side.
Value joined(const OpCall& c) {
  const auto& widths = integers(c.attrs(), "inputdimensions");
  check(widths.empty() || widths.size() == c.count(),
        "it has {} inputdimensions and {} inputs, expected as many", widths.size(), c.count());
  std::vector<Value> parts;
  for (size_t i = 0; i < c.count(); ++i) {
    Value x = as_rows(cast(c.x(i), DType::f32));
    if (!widths.empty() && !x.dim(1).is(widths[i])) {
      check(widths[i] >= 0, "inputdimensions has {}", widths[i]);
      const int64_t has = x.dim(1).value().value_or(0);  // at least
      if (has < widths[i]) x = pad_axis(x, 1, 0, widths[i] - has);
      x = slice(x, 1, 0, widths[i]);
    }
    parts.push_back(x);
  }
  return parts.size() == 1 ? parts[0] : concat(parts, 1);
}

}  // namespace

static void register_features(OpSet& ops) {
  ops.op("ai.onnx.ml::ArrayFeatureExtractor")
      .in("X", kInputs | bit(DType::string))
      .in("Y", kInt64, "Y")
      .out("Z")
      .defined_as(chosen_features);
  ops.op("ai.onnx.ml::Binarizer")
      .in("X", kInputs)
      .out("Y")
      .attr("threshold", 0.0)
      .not_differentiable()
      .defined_as(binarized);
  ops.op("ai.onnx.ml::Scaler")
      .in("X", kInputs)
      .out("Y", kOut, "Y")
      .attr_optional("offset")
      .attr_optional("scale")
      .defined_as(scaled);
  ops.op("ai.onnx.ml::Normalizer")
      .in("X", kInputs)
      .out("Y", kOut, "Y")
      .attr("norm", std::string("MAX"))
      .defined_as(normalized);
  ops.op("ai.onnx.ml::Imputer")
      .in("X", kInputs)
      .out("Y")
      .attr_optional("imputed_value_floats")
      .attr_optional("imputed_value_int64s")
      .attr("replaced_value_float", 0.0)
      .attr("replaced_value_int64", int64_t{0})
      .defined_as(imputed);
  ops.op("ai.onnx.ml::FeatureVectorizer")
      .in_variadic("X", kInputs)
      .out("Y", kOut, "Y")
      .attr_optional("inputdimensions")
      .defined_as(joined);
}

const Family<OpSet> kFeaturesOps("ops", "ml/features", register_features);

}  // namespace ort::ml
