// Categories as other values: tables of keys and values.
#include <algorithm>
#include <numeric>

#include "csrc/ops/ml/attributes.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

constexpr TypeSet kTexts = bit(DType::string);
constexpr TypeSet kKeys = kInputs | kTexts | bit(DType::i16);
constexpr TypeSet kCategories = kTexts | kInt64;

// Elements that are a key become its value; others become `otherwise`, or are an error without it.
Value looked_up(Value x, Tensor keys, Tensor values, std::optional<Tensor> otherwise) {
  Attrs attrs{{"keys", std::move(keys)}, {"values", std::move(values)}};
  if (otherwise) attrs.set("otherwise", *std::move(otherwise));
  return x.graph->emit1("ort::Lookup", {x}, std::move(attrs));
}

void infer_table(InferContext& c, const Tensor& keys, const Tensor& values,
                 const Tensor* otherwise) {
  c.require(keys.count() == values.count(), "it has {} keys and {} values, expected as many",
            keys.count(), values.count());
  c.require(keys.dtype == c.dtype(), "x is {}, the keys are {}", c.dtype(), keys.dtype);
  if (otherwise)
    c.require(otherwise->count() == 1 && otherwise->dtype == values.dtype,
              "what others become is {}{}, expected one {}", otherwise->dtype, otherwise->sizes,
              values.dtype);
  c.out(0, values.dtype, c.type(0).dims);
}

void infer_lookup(InferContext& c) {
  const auto tensor = [&](const char* name) {
    const Attr* attr = c.attrs().find(name);
    return attr ? &std::get<Tensor>(*attr) : nullptr;
  };
  infer_table(c, *tensor("keys"), *tensor("values"), tensor("otherwise"));
}

// --- LabelEncoder ---

// The table that the one list of these is that the node has: of `part` "keys" or "values".
Tensor table(const Attrs& attrs, const std::string& part) {
  std::vector<Tensor> found;
  const auto add = [&](Tensor tensor) {
    if (tensor.count() > 0) found.push_back(std::move(tensor));
  };
  const auto& numbers = floats(attrs, part + "_floats");
  add(tensor_of(texts(attrs, part + "_strings")));
  add(Tensor::of(integers(attrs, part + "_int64s")));
  add(tensor_of(numbers, {static_cast<int64_t>(numbers.size())}, DType::f32));
  if (const Attr* tensor = attrs.find(part + "_tensor")) {
    check(std::holds_alternative<Tensor>(*tensor), "{}_tensor is no tensor", part);
    add(std::get<Tensor>(*tensor));
  }
  check(found.size() == 1, "it has {} lists of {}, expected one", found.size(), part);
  return found[0];
}

Tensor default_of(const Attrs& attrs, const Tensor& values) {
  if (attrs.has("values_tensor") && attrs.has("default_tensor"))
    return std::get<Tensor>(*attrs.find("default_tensor"));
  if (values.dtype == DType::string) return tensor_of({attrs.s("default_string")});
  if (values.dtype == DType::i64) return Tensor::of({attrs.i("default_int64")});
  return Tensor::scalar(values.dtype, is_floating(values.dtype)
                                          ? attrs.f("default_float")
                                          : static_cast<double>(attrs.i("default_int64")));
}

Value encoded(const OpCall& c) {
  const Tensor values = table(c.attrs(), "values");
  return looked_up(c.x(), table(c.attrs(), "keys"), values, default_of(c.attrs(), values));
}

// Of an x of any rank, whose parts are not known yet.
void infer_encoder(InferContext& c) {
  const Tensor values = table(c.attrs(), "values"), otherwise = default_of(c.attrs(), values);
  infer_table(c, table(c.attrs(), "keys"), values, &otherwise);
}

void infer_mapper(InferContext& c) {
  const Tensor names = tensor_of(texts(c.attrs(), "cats_strings"));
  const Tensor numbers = Tensor::of(integers(c.attrs(), "cats_int64s"));
  const bool strings = c.dtype() == DType::string;
  infer_table(c, strings ? names : numbers, strings ? numbers : names, nullptr);
}

// Strings to numbers or numbers to strings, by two lists.
Value mapped(const OpCall& c) {
  const Tensor names = tensor_of(texts(c.attrs(), "cats_strings"));
  const Tensor numbers = Tensor::of(integers(c.attrs(), "cats_int64s"));
  if (c.x().dtype() == DType::string)
    return looked_up(c.x(), names, numbers, Tensor::of({c.attrs().i("default_int64")}));
  return looked_up(c.x(), numbers, names, tensor_of({c.attrs().s("default_string")}));
}

// --- OneHotEncoder ---

// A number is of a category where it is equal to it: 1.5 is of none.
Value one_hot(const OpCall& c) {
  const auto& names = texts(c.attrs(), "cats_strings");
  const auto& numbers = integers(c.attrs(), "cats_int64s");
  check(names.empty() != numbers.empty(),
        "it has {} cats_strings and {} cats_int64s, expected one of the two", names.size(),
        numbers.size());
  const bool strings = c.x().dtype() == DType::string;
  check(strings == numbers.empty(), "X is {}, the categories are {}", c.x().dtype(),
        numbers.empty() ? "strings" : "int64s");
  std::vector<int64_t> places(std::max(names.size(), numbers.size()));
  std::iota(places.begin(), places.end(), int64_t{0});
  Value x = c.x();
  Tensor keys = tensor_of(names);
  if (!strings && !is_floating(x.dtype())) {
    x = cast(x, DType::i64);
    keys = Tensor::of(numbers);
  } else if (!strings) {
    x = cast(x, DType::f64);
    keys = tensor_of({numbers.begin(), numbers.end()}, {static_cast<int64_t>(numbers.size())},
                     DType::f64);
  }
  std::optional<Tensor> none;
  if (c.attrs().i("zeros") != 0) none = Tensor::of({-1});
  const Value place = looked_up(x, keys, Tensor::of(places), none);
  return cast(equal(unsqueeze(place, {-1}), c.graph().ints(places)), DType::f32);
}

void register_label_encoder(OpSet& ops) {
  OpSchema& encoder = ops.op("ai.onnx.ml::LabelEncoder")
                          .in("X", kKeys)
                          .out("Y", kKeys, "Y")
                          .since(2)
                          .attr("default_string", std::string("_Unused"))
                          .attr("default_int64", int64_t{-1})
                          .attr("default_float", -0.0)
                          .attr_optional("default_tensor")
                          .not_differentiable()
                          .shape(infer_encoder)
                          .defined_as(encoded);
  for (const char* part : {"keys", "values"})
    for (const char* kind : {"_strings", "_int64s", "_floats", "_tensor"})
      encoder.attr_optional(std::string(part) + kind);
}

}  // namespace

static void register_encoders(OpSet& ops) {
  ops.op("ort::Lookup")
      .in("x", kKeys)
      .out("y", kKeys, "V")
      .attr_required("keys")
      .attr_required("values")
      .attr_optional("otherwise")
      .shape(infer_lookup)
      .not_differentiable();
  register_label_encoder(ops);
  ops.op("ai.onnx.ml::CategoryMapper")
      .in("X", kCategories)
      .out("Y", kCategories, "Y")
      .attr("default_int64", int64_t{-1})
      .attr("default_string", std::string("_Unused"))
      .attr_required("cats_int64s")
      .attr_required("cats_strings")
      .not_differentiable()
      .shape(infer_mapper)
      .defined_as(mapped);
  ops.op("ai.onnx.ml::OneHotEncoder")
      .in("X", kInputs | kTexts)
      .out("Y", bit(DType::f32), "Y")
      .attr("zeros", int64_t{1})
      .attr_optional("cats_int64s")
      .attr_optional("cats_strings")
      .not_differentiable()
      .defined_as(one_hot);
}

const Family<OpSet> kEncodersOps("ops", "ml/encoders", register_encoders);

}  // namespace ort::ml
