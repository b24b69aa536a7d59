// Parsing TensorProto and checking sizes against the bytes that are there.
#include "csrc/onnx/tensor.h"

#include <algorithm>
#include <cstring>
#include <protozero/pbf_message.hpp>

#include "csrc/onnx/fields.h"

namespace ort {

using protozero::pbf_reader;

namespace {

template <class Range>
void append_ints(const Range& range, std::vector<int64_t>& out) {
  for (const auto value : range) out.push_back(static_cast<int64_t>(value));
}

void read_doubles(pbf_reader& message, std::vector<double>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    for (const double value : message.get_packed_double()) out.push_back(value);
  else
    out.push_back(message.get_double());
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xC2 && first < 0xE0 ? 2
                          : first >= 0xE0 && first < 0xF0 ? 3
                          : first >= 0xF0 && first < 0xF5 ? 4
                                                          : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    const auto second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool longer_than_needed =
        (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
    if (longer_than_needed || no_character) return false;
    i += length;
  }
  return true;
}

int64_t number_in(const RawTensor& t, const char* key, int64_t otherwise) {
  const auto found = t.location.find(key);
  if (found == t.location.end()) return otherwise;
  char* end = nullptr;
  const int64_t value = std::strtoll(found->second.c_str(), &end, 10);
  check(!found->second.empty() && *end == 0 && value >= 0,
        "tensor '{}': external data {} is '{}', expected a number", t.name, key, found->second);
  return value;
}

Tensor read_strings(const RawTensor& t, int64_t count) {
  check(static_cast<int64_t>(t.strings.size()) == count, "tensor '{}' has {} strings, expected {}",
        t.name, t.strings.size(), count);
  return Tensor::of_strings(t.strings, t.sizes);
}

// Bytes other than 0 and 1 are no bools.
Tensor truths(const Tensor& tensor) {
  Tensor result = Tensor::empty(DType::boolean, tensor.sizes);
  for (size_t i = 0; i < tensor.bytes(); ++i)
    result.as<uint8_t>()[i] = tensor.as<uint8_t>()[i] != 0 ? 1 : 0;
  return result;
}

// A stream of `bits` each, a byte each.
Tensor unpacked(const Tensor& stream, DType dtype, const Sizes& sizes) {
  const unsigned bits = static_cast<unsigned>(bits_of(dtype));
  const auto* from = stream.as<uint8_t>();
  Tensor result = Tensor::empty(dtype, sizes);
  const size_t count = result.bytes();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits, byte = at / 8;
    unsigned window = from[byte];
    if (at % 8 + bits > 8) window |= static_cast<unsigned>(from[byte + 1]) << 8;
    result.as<uint8_t>()[i] = static_cast<uint8_t>((window >> (at % 8)) & ((1u << bits) - 1));
  }
  return result;
}

// Narrow numbers in int32_data: each is a byte of the stream that raw data would be.
Tensor packed_bytes(const RawTensor& t, DType dtype, int64_t count) {
  const size_t bytes = packed_bytes(count, dtype);
  check(t.ints.size() == bytes, "tensor '{}' of shape {} has {} bytes, expected {}", t.name,
        t.sizes, t.ints.size(), bytes);
  Tensor stream = Tensor::empty(DType::u8, {static_cast<int64_t>(bytes)});
  for (size_t i = 0; i < bytes; ++i) stream.as<uint8_t>()[i] = static_cast<uint8_t>(t.ints[i]);
  return unpacked(stream, dtype, t.sizes);
}

// A real and an imaginary part each.
Tensor read_complex(const RawTensor& t, DType dtype, int64_t count) {
  check(static_cast<int64_t>(t.floats.size()) == checked_mul(count, 2),
        "tensor '{}' of shape {} has {} parts of complex numbers, expected {}", t.name, t.sizes,
        t.floats.size(), checked_mul(count, 2));
  Tensor result = Tensor::empty(dtype, t.sizes);
  for (size_t i = 0; i < t.floats.size(); ++i)
    if (dtype == DType::c64)
      result.as<float>()[i] = static_cast<float>(t.floats[i]);
    else
      result.as<double>()[i] = t.floats[i];
  return result;
}

Tensor read_numbers(const RawTensor& t, DType dtype, int64_t count) {
  if (is_narrow(dtype)) return packed_bytes(t, dtype, count);
  if (is_complex(dtype)) return read_complex(t, dtype, count);
  const bool floats = dtype == DType::f32 || dtype == DType::f64;
  const int64_t given = static_cast<int64_t>(floats ? t.floats.size() : t.ints.size());
  check(given == count, "tensor '{}' of shape {} has {} elements, expected {}", t.name, t.sizes,
        given, count);
  Tensor result = Tensor::empty(dtype, t.sizes);
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (floats)
      set_element(result, i, t.floats[at]);
    else if (is_half(dtype))
      result.as<uint16_t>()[i] = static_cast<uint16_t>(t.ints[at]);
    else
      dispatch(dtype, [&]<class T>() { result.as<T>()[i] = static_cast<T>(t.ints[at]); });
  }
  return result;
}

// A file of a few bytes may ask for a sparse tensor of any size.
constexpr int64_t kMostDense = int64_t{1} << 30;  // bytes

int64_t flat_index(const RawSparseTensor& t, const int64_t* place) {
  int64_t at = 0;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    check(place[d] >= 0 && place[d] < t.sizes[d],
          "sparse tensor '{}' of shape {} has an element at {} of axis {}", t.values.name, t.sizes,
          place[d], d);
    at = at * t.sizes[d] + place[d];
  }
  return at;
}

}  // namespace

size_t packed_bytes(int64_t count, DType dtype) {
  return (static_cast<size_t>(checked_mul(count, bits_of(dtype))) + 7) / 8;
}

std::string packed(const Tensor& tensor) {
  const size_t bits = static_cast<size_t>(bits_of(tensor.dtype)), count = tensor.bytes();
  std::string stream(packed_bytes(tensor.count(), tensor.dtype), 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits;
    const unsigned window = (tensor.as<uint8_t>()[i] & ((1u << bits) - 1)) << (at % 8);
    stream[at / 8] = static_cast<char>(static_cast<unsigned char>(stream[at / 8]) | window);
    if (at % 8 + bits > 8) stream[at / 8 + 1] = static_cast<char>(window >> 8);
  }
  return stream;
}

std::string read_text(pbf_reader& message) {
  std::string text = message.get_string();
  check(is_utf8(text), "the file has a text of {} bytes that is no UTF-8", text.size());
  return text;
}

// A repeated number, packed or not.
void read_int64s(pbf_reader& message, std::vector<int64_t>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    append_ints(message.get_packed_int64(), out);
  else
    out.push_back(message.get_int64());
}

void read_floats(pbf_reader& message, std::vector<double>& out) {
  if (message.wire_type() == protozero::pbf_wire_type::length_delimited)
    for (const float value : message.get_packed_float()) out.push_back(value);
  else
    out.push_back(message.get_float());
}

std::pair<std::string, std::string> read_entry(pbf_reader pair) {
  protozero::pbf_message<onnx::StringStringEntry> entry(pair);
  std::string key, value;
  while (entry.next()) {
    if (entry.tag() == onnx::StringStringEntry::key)
      key = read_text(entry);
    else if (entry.tag() == onnx::StringStringEntry::value)
      value = read_text(entry);
    else
      entry.skip();
  }
  return {std::move(key), std::move(value)};
}

RawTensor parse_tensor(pbf_reader tensor) {
  protozero::pbf_message<onnx::TensorField> message(tensor);
  RawTensor t;
  while (message.next()) switch (message.tag()) {
      case onnx::TensorField::dims:
        read_int64s(message, t.sizes);
        break;
      case onnx::TensorField::data_type:
        t.dtype = message.get_int32();
        break;
      case onnx::TensorField::float_data:
        read_floats(message, t.floats);
        break;
      case onnx::TensorField::int32_data:
      case onnx::TensorField::int64_data:
      case onnx::TensorField::uint64_data:
        read_int64s(message, t.ints);
        break;
      case onnx::TensorField::string_data:
        t.strings.push_back(message.get_string());
        break;
      case onnx::TensorField::name:
        t.name = read_text(message);
        break;
      case onnx::TensorField::raw_data:
        t.raw = message.get_view();
        t.has_raw = true;
        break;
      case onnx::TensorField::double_data:
        read_doubles(message, t.floats);
        break;
      case onnx::TensorField::external_data: {
        auto [key, value] = read_entry(message.get_message());
        t.location[std::move(key)] = std::move(value);
        break;
      }
      case onnx::TensorField::data_location:
        t.external = message.get_int32() == static_cast<int>(onnx::DataLocation::external);
        break;
      default:
        message.skip();
    }
  return t;
}

RawSparseTensor parse_sparse_tensor(pbf_reader tensor) {
  protozero::pbf_message<onnx::SparseTensor> message(tensor);
  RawSparseTensor t;
  while (message.next()) switch (message.tag()) {
      case onnx::SparseTensor::values:
        t.values = parse_tensor(message.get_message());
        break;
      case onnx::SparseTensor::indices:
        t.indices = parse_tensor(message.get_message());
        break;
      case onnx::SparseTensor::dims:
        read_int64s(message, t.sizes);
        break;
      default:
        message.skip();
    }
  return t;
}

Tensor TensorReader::read(const RawSparseTensor& t) {
  const std::string& name = t.values.name;
  for (const int64_t size : t.sizes)
    check(size >= 0, "sparse tensor '{}' has negative size {}", name, size);
  const Tensor values = read(t.values), indices = read(t.indices);
  const int64_t count = element_count(t.sizes), rank = static_cast<int64_t>(t.sizes.size());
  check(values.dtype != DType::string && bits_of(values.dtype) >= 8,
        "sparse tensor '{}' has elements of type {}, which is not supported", name, values.dtype);
  check(count <= kMostDense / static_cast<int64_t>(size_of(values.dtype)),
        "sparse tensor '{}' of shape {} has more than {} bytes when it is dense", name, t.sizes,
        kMostDense);
  check(values.sizes.size() == 1, "sparse tensor '{}' has values of shape {}, expected [NNZ]", name,
        values.sizes);
  const Sizes flat{values.count()}, places{values.count(), rank};
  check(indices.dtype == DType::i64 && (indices.sizes == flat || indices.sizes == places),
        "sparse tensor '{}' has {} indices of shape {}, expected int64 {} or {}", name,
        indices.dtype, indices.sizes, flat, places);
  Tensor dense = Tensor::empty(values.dtype, t.sizes);
  std::memset(dense.data, 0, dense.bytes());
  const size_t bytes = size_of(values.dtype);
  for (int64_t i = 0; i < values.count(); ++i) {
    const int64_t at = indices.sizes == flat ? indices.as<int64_t>()[i]
                                             : flat_index(t, indices.as<int64_t>() + i * rank);
    check(at >= 0 && at < count, "sparse tensor '{}' of shape {} has an element at {}", name,
          t.sizes, at);
    std::memcpy(static_cast<char*>(dense.data) + static_cast<size_t>(at) * bytes,
                static_cast<const char*>(values.data) + static_cast<size_t>(i) * bytes, bytes);
  }
  return dense;
}

Tensor TensorReader::read(const RawTensor& t) {
  check(known_dtype(t.dtype), "tensor '{}' has element type {}, which is not supported", t.name,
        t.dtype);
  const DType dtype = static_cast<DType>(t.dtype);
  for (const int64_t size : t.sizes)
    check(size >= 0, "tensor '{}' has negative size {}", t.name, size);
  const int64_t count = element_count(t.sizes);
  if (dtype == DType::string) return read_strings(t, count);
  if (!t.external && !t.has_raw) {
    const Tensor result = read_numbers(t, dtype, count);
    return dtype == DType::boolean ? truths(result) : result;
  }
  const bool packs = bits_of(dtype) < 8;
  const int64_t bytes = packs ? static_cast<int64_t>(packed_bytes(count, dtype))
                              : checked_mul(count, static_cast<int64_t>(size_of(dtype)));
  const DType stored = packs ? DType::u8 : dtype;
  const Sizes sizes = packs ? Sizes{bytes} : t.sizes;
  const Tensor result =
      t.external ? read_external(t, stored, sizes, bytes) : read_raw(t, stored, sizes, bytes);
  if (packs) return unpacked(result, dtype, t.sizes);
  return dtype == DType::boolean ? truths(result) : result;
}

Tensor TensorReader::read_raw(const RawTensor& t, DType dtype, const Sizes& sizes, int64_t bytes) {
  check(static_cast<int64_t>(t.raw.size()) == bytes,
        "tensor '{}' of shape {} has {} bytes, expected {}", t.name, t.sizes, t.raw.size(), bytes);
  return borrow(t.raw.data(), dtype, sizes, owner_, files_.allocator());
}

Tensor TensorReader::read_external(const RawTensor& t, DType dtype, const Sizes& sizes,
                                   int64_t bytes) {
  const auto location = t.location.find("location");
  check(location != t.location.end(), "tensor '{}' is external but names no location", t.name);
  const int64_t offset = number_in(t, "offset", 0), length = number_in(t, "length", bytes);
  check(length == bytes, "tensor '{}' of shape {} has {} external bytes, expected {}", t.name,
        t.sizes, length, bytes);
  return files_.read(location->second, offset, dtype, sizes, t.name);
}

const Tensor& as_given(const RawTensor& tensor, const Tensor& given) {
  const bool same = static_cast<int64_t>(given.dtype) == tensor.dtype;
  check(same && given.sizes == tensor.sizes,
        "initializer '{}' is given as {} of shape {}, the model has {} of shape {}", tensor.name,
        given.dtype, given.sizes,
        known_dtype(tensor.dtype) ? name_of(static_cast<DType>(tensor.dtype)) : "no dtype",
        tensor.sizes);
  return given;
}

}  // namespace ort
