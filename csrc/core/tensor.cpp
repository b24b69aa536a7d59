// Memory of constants, and element access for the slow paths (folding, the reference provider).
#include "csrc/core/tensor.h"

#include <bit>
#include <cmath>
#include <cstdlib>

#include "csrc/core/convert.h"
#include "csrc/core/meter.h"
#include "csrc/core/pool.h"

namespace ort {
namespace {

constexpr size_t kBeside = 64;  // bytes of what owns a tensor's memory

// Without memory; `padded` gets the bytes that it takes, with room behind it.
Tensor described(DType dtype, Sizes sizes, size_t& padded) {
  Tensor result;
  result.dtype = dtype;
  result.sizes = std::move(sizes);
  const int64_t count = result.count();
  check(count >= 0, "a tensor has negative size {}", result.sizes);
  const size_t bytes =
      static_cast<size_t>(checked_mul(count, static_cast<int64_t>(size_of(dtype))));
  check_memory(bytes);
  padded = (bytes + 63) / 64 * 64 + 64;
  return result;
}

}  // namespace

Tensor Tensor::unwritten(DType dtype, Sizes sizes) {
  struct Pooled {
    Charge charge;
    Block block;
  };
  if (dtype == DType::string) return empty(dtype, std::move(sizes));
  size_t padded = 0;
  Tensor result = described(dtype, std::move(sizes), padded);
  Charge charge(padded + kBeside);
  auto owner = std::make_shared<Pooled>(std::move(charge), Block(padded));
  result.data = owner->block.data();
  result.owner = std::move(owner);
  return result;
}

Tensor Tensor::empty(DType dtype, Sizes sizes) {
  size_t padded = 0;
  Tensor result = described(dtype, std::move(sizes), padded);
  Charge charge(padded + kBeside);
  const size_t mapped = padded < kHugePage ? 0 : (padded + kPage - 1) / kPage * kPage;
  void* memory = mapped ? map_pages(mapped) : std::aligned_alloc(64, padded);
  if (!memory) out_of_memory("a tensor of {} bytes", result.bytes());
  if (!mapped) std::memset(memory, 0, padded);
  result.data = memory;
  result.owner =
      std::shared_ptr<const void>(memory, [mapped, counted = std::move(charge)](const void* p) {
        mapped ? unmap_pages(const_cast<void*>(p), mapped) : std::free(const_cast<void*>(p));
      });
  return result;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor result = empty(dtype, {});
  set_element(result, 0, value);
  return result;
}

Tensor Tensor::of(const std::vector<int64_t>& values) {
  Tensor result = empty(DType::i64, {static_cast<int64_t>(values.size())});
  if (!values.empty()) std::memcpy(result.data, values.data(), values.size() * 8);
  return result;
}

Tensor Tensor::of_strings(std::vector<std::string> texts, Sizes sizes) {
  struct Strings {
    std::vector<std::string> texts;
    std::vector<const std::string*> elements;
    Charge charge;
  };
  size_t bytes = kBeside;
  for (const std::string& text : texts) bytes += sizeof(std::string) + sizeof(void*) + text.size();
  auto strings =
      std::make_shared<Strings>(std::move(texts), std::vector<const std::string*>{}, Charge(bytes));
  for (const std::string& text : strings->texts) strings->elements.push_back(&text);
  Tensor result;
  result.dtype = DType::string;
  result.sizes = std::move(sizes);
  check(result.count() == static_cast<int64_t>(strings->texts.size()),
        "{} strings do not fill shape {}", strings->texts.size(), result.sizes);
  result.data = strings->elements.data();
  result.owner = std::move(strings);
  return result;
}

const std::string& text_of(const Tensor& tensor, int64_t i) {
  static const std::string empty;
  const std::string* text = tensor.as<const std::string*>()[i];
  return text ? *text : empty;
}

Tensor own_strings(const Tensor& tensor) {
  if (tensor.dtype != DType::string) return tensor;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < tensor.count(); ++i) texts.push_back(text_of(tensor, i));
  return Tensor::of_strings(std::move(texts), tensor.sizes);
}

double element_as_double(const Tensor& tensor, int64_t i) {
  if (tensor.dtype == DType::f16) return half_to_float(tensor.as<uint16_t>()[i]);
  if (tensor.dtype == DType::bf16) return bfloat_to_float(tensor.as<uint16_t>()[i]);
  if (is_narrow_float(tensor.dtype)) return float_of_bits(tensor.as<uint8_t>()[i], tensor.dtype);
  if (is_narrow_integer(tensor.dtype)) return static_cast<double>(element_as_int(tensor, i));
  return dispatch(tensor.dtype, [&]<class T>() { return static_cast<double>(tensor.as<T>()[i]); });
}

int64_t element_as_int(const Tensor& tensor, int64_t i) {
  if (is_half(tensor.dtype) || is_narrow_float(tensor.dtype))
    return number_as<int64_t>(element_as_double(tensor, i));
  if (is_narrow_integer(tensor.dtype))
    return integer_of_bits(tensor.as<uint8_t>()[i], tensor.dtype);
  return dispatch(tensor.dtype, [&]<class T>() { return number_as<int64_t>(tensor.as<T>()[i]); });
}

void set_element(Tensor& tensor, int64_t i, double value) {
  if (tensor.dtype == DType::f16) {
    tensor.as<uint16_t>()[i] = float_to_half(static_cast<float>(value));
  } else if (tensor.dtype == DType::bf16) {
    tensor.as<uint16_t>()[i] = float_to_bfloat(static_cast<float>(value));
  } else if (is_narrow_float(tensor.dtype)) {
    tensor.as<uint8_t>()[i] = static_cast<uint8_t>(bits_of_float(value, tensor.dtype));
  } else if (is_narrow_integer(tensor.dtype)) {
    tensor.as<uint8_t>()[i] = bits_of_integer(number_as<int64_t>(value), tensor.dtype);
  } else {
    dispatch(tensor.dtype, [&]<class T>() { tensor.as<T>()[i] = number_as<T>(value); });
  }
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes) return false;
  if (a.dtype == DType::string) {
    for (int64_t i = 0; i < a.count(); ++i)
      if (text_of(a, i) != text_of(b, i)) return false;
    return true;
  }
  return a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float tiny = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -tiny : tiny;
  }
  const uint32_t wide = exponent == 31 ? (0xffu << 23) : ((exponent + 112) << 23);
  return std::bit_cast<float>(sign | wide | (mantissa << 13));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 6.103515625e-05f)  // subnormal: the unit is 2^-24, rounded to even
    return static_cast<uint16_t>(sign |
                                 static_cast<uint16_t>(std::nearbyint(magnitude * 16777216.0f)));
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace ort
