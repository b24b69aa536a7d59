// What makes maps and what reads them.
#include "csrc/ops/ml/attributes.h"
#include "csrc/ops/ops.h"

namespace ort::ml {
namespace {

// A map from each label to the score in its column, for each row.
void infer_zip(InferContext& c) {
  const Tensor labels = labels_of(c.attrs(), "classlabels_int64s", "classlabels_strings");
  if (c.ranked(0)) {
    c.require(c.rank() == 1 || c.rank() == 2, "X has shape {}, expected [N, C] or [C]", c.dims());
    c.assume_equal({c.dims().back()}, {labels.count()}, "scores of a row and class labels");
  }
  c.out(0, Type::sequence(Type::map(labels.dtype, Type::tensor(DType::f32, Dims{}))));
}

const Type& values_of(InferContext& c) {
  const Type& type = c.type(0);
  c.require(type.held().is_tensor(), "X is {}, expected a map of tensors", type.text());
  return type.held();
}

// A row [1, V] of the values of a vocabulary, zeros where the map has none.
void infer_vectorize(InferContext& c) {
  const Tensor keys = labels_of(c.attrs(), "int64_vocabulary", "string_vocabulary");
  c.require(c.type(0).dtype == keys.dtype, "X is {}, the vocabulary is {}", c.type(0).text(),
            keys.dtype);
  c.out(0, values_of(c).dtype, Dims{1, keys.count()});
}

// A row of values in the order of their keys, or at their keys below max_map.
void infer_cast(InferContext& c) {
  const std::string& form = c.attrs().s("map_form");
  const std::string& to = c.attrs().s("cast_to");
  c.require(form == "DENSE" || form == "SPARSE", "map_form is '{}', expected DENSE or SPARSE",
            form);
  const DType dtype = to == "TO_FLOAT"    ? DType::f32
                      : to == "TO_STRING" ? DType::string
                                          : DType::i64;
  c.require(dtype != DType::i64 || to == "TO_INT64",
            "cast_to is '{}', expected TO_FLOAT, TO_STRING or TO_INT64", to);
  const DType from = values_of(c).dtype;
  c.require(c.type(0).dtype == DType::i64 && (from == DType::string || from == DType::f32),
            "X is {}, expected a map from int64 to strings or float32", c.type(0).text());
  const int64_t most = c.attrs().i("max_map");
  c.require(form == "DENSE" || most > 0, "max_map is {}, expected more than 0", most);
  c.out(0, dtype, Dims{1, form == "DENSE" ? c.fresh() : Dim(most)});
}

}  // namespace

static void register_maps(OpSet& ops) {
  ops.op("ai.onnx.ml::ZipMap")
      .in("X", bit(DType::f32))
      .out("Z", kSequence)
      .attr_optional("classlabels_int64s")
      .attr_optional("classlabels_strings")
      .allocates()
      .shape(infer_zip)
      .not_differentiable();
  ops.op("ai.onnx.ml::DictVectorizer")
      .in("X", kMap, "M")
      .out("Y", kInputs | bit(DType::string), "Y")
      .attr_optional("int64_vocabulary")
      .attr_optional("string_vocabulary")
      .allocates()
      .shape(infer_vectorize)
      .not_differentiable();
  ops.op("ai.onnx.ml::CastMap")
      .in("X", kMap, "M")
      .out("Y", bit(DType::string) | bit(DType::f32) | kInt64, "Y")
      .attr("cast_to", std::string("TO_FLOAT"))
      .attr("map_form", std::string("DENSE"))
      .attr("max_map", int64_t{1})
      .allocates()
      .shape(infer_cast)
      .not_differentiable();
}

const Family<OpSet> kMapsOps("ops", "ml/maps", register_maps);

}  // namespace ort::ml
