// The fields of ONNX's messages that are read or written, by their names in onnx.proto.
#pragma once

#include <protozero/types.hpp>

namespace ort::onnx {

using Field = protozero::pbf_tag_type;

enum class Model : Field {
  ir_version = 1,
  producer_name = 2,
  domain = 4,
  model_version = 5,
  doc_string = 6,
  graph = 7,
  opset_import = 8,
  metadata_props = 14,
  functions = 25,
};
enum class Function : Field {
  name = 1,
  input = 4,
  output = 5,
  attribute = 6,
  node = 7,
  opset_import = 9,
  domain = 10,
  attribute_proto = 11,
  overload = 13,
};
enum class OperatorSetId : Field { domain = 1, version = 2 };
enum class Graph : Field {
  node = 1,
  name = 2,
  initializer = 5,
  doc_string = 10,
  input = 11,
  output = 12,
  sparse_initializer = 15,
};
enum class Node : Field {
  input = 1,
  output = 2,
  name = 3,
  op_type = 4,
  attribute = 5,
  doc_string = 6,
  domain = 7,
  overload = 8,
};
enum class Attribute : Field {
  name = 1,
  f = 2,
  i = 3,
  s = 4,
  t = 5,
  g = 6,
  floats = 7,
  ints = 8,
  strings = 9,
  tp = 14,
  type = 20,
  sparse_tensor = 22,
  ref_attr_name = 21,
};
enum class AttributeType {
  undefined = 0,
  f32 = 1,
  i64 = 2,
  string = 3,
  tensor = 4,
  graph = 5,
  floats = 6,
  ints = 7,
  strings = 8,
  sparse_tensor = 11,
  type = 13,
};
enum class TensorField : Field {
  dims = 1,
  data_type = 2,
  float_data = 4,
  int32_data = 5,
  string_data = 6,
  int64_data = 7,
  name = 8,
  raw_data = 9,
  double_data = 10,
  uint64_data = 11,
  external_data = 13,
  data_location = 14,
};
enum class SparseTensor : Field { values = 1, indices = 2, dims = 3 };
enum class DataLocation { inside = 0, external = 1 };
enum class StringStringEntry : Field { key = 1, value = 2 };
enum class ValueInfo : Field { name = 1, type = 2 };
enum class TypeField : Field {
  tensor_type = 1,
  sequence_type = 4,
  map_type = 5,
  optional_type = 9,
};
enum class MapType : Field { key_type = 1, value_type = 2 };
enum class TensorType : Field { elem_type = 1, shape = 2 };
enum class ContainerType : Field { elem_type = 1 };  // TypeProto.Sequence, TypeProto.Optional
enum class TensorShape : Field { dim = 1 };
enum class Dimension : Field { dim_value = 1, dim_param = 2, denotation = 3 };

}  // namespace ort::onnx
