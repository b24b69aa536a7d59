// Tensors of ONNX files: their fields as they stand, and their bytes checked.
#pragma once

#include <map>
#include <protozero/pbf_reader.hpp>

#include "csrc/core/tensor.h"
#include "csrc/onnx/file.h"

namespace ort {

// A TensorProto as it stands in the file.
struct RawTensor {
  std::string name;
  Sizes sizes;
  int64_t dtype = 0;
  std::vector<int64_t> ints;   // int32_data, int64_data, uint64_data
  std::vector<double> floats;  // float_data, double_data
  std::vector<std::string> strings;
  protozero::data_view raw;
  bool has_raw = false, external = false;
  std::map<std::string, std::string> location;
};

RawTensor parse_tensor(protozero::pbf_reader message);

// A SparseTensorProto: values [NNZ] with where they lie, [NNZ] of the flat tensor or [NNZ, rank].
struct RawSparseTensor {
  RawTensor values, indices;
  Sizes sizes;
};

RawSparseTensor parse_sparse_tensor(protozero::pbf_reader message);

// A name or a word: what is no UTF-8 is refused, as no message could quote it.
std::string read_text(protozero::pbf_reader& message);
// Repeated numbers, packed or not.
void read_int64s(protozero::pbf_reader& message, std::vector<int64_t>& out);
void read_floats(protozero::pbf_reader& message, std::vector<double>& out);

// Elements of 2, 4 and 6 bits as files have them, a stream with the least significant bits first,
// and a byte each as in memory.
size_t packed_bytes(int64_t count, DType dtype);
std::string packed(const Tensor& tensor);

// What is given in the place of the file's tensor: of its dtype and shape.
const Tensor& as_given(const RawTensor& tensor, const Tensor& given);

class TensorReader {
 public:
  TensorReader(ExternalFiles files, std::shared_ptr<const void> owner)
      : files_(std::move(files)), owner_(std::move(owner)) {}

  // The tensor's elements, where they are when they are aligned; throws naming the tensor.
  Tensor read(const RawTensor& t);
  Tensor read(const RawSparseTensor& t);  // dense

 private:
  Tensor read_raw(const RawTensor& t, DType dtype, const Sizes& sizes, int64_t bytes);
  Tensor read_external(const RawTensor& t, DType dtype, const Sizes& sizes, int64_t bytes);

  ExternalFiles files_;
  std::shared_ptr<const void> owner_;
};

}  // namespace ort
