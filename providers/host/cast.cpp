// Strings made of numbers.
#include "csrc/core/convert.h"
#include "providers/host_kernel.h"
#include "providers/kernel_table.h"

namespace ort {
namespace {

std::string text_of_element(const Tensor& x, int64_t i) {
  if (x.dtype == DType::string) return text_of(x, i);
  if (x.dtype == DType::boolean) return x.as<uint8_t>()[i] ? "True" : "False";
  if (x.dtype == DType::u64) return std::to_string(x.as<uint64_t>()[i]);
  if (is_floating(x.dtype) || is_narrow_float(x.dtype))
    return number_text(element_as_double(x, i), x.dtype);
  return std::to_string(element_as_int(x, i));
}

std::vector<Item> cast(const HostCall& c) {
  const Tensor& x = c.tensor();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < x.count(); ++i) texts.push_back(text_of_element(x, i));
  return {Tensor::of_strings(std::move(texts), x.sizes)};
}

}  // namespace

static void register_host_cast(HostTable& table) {
  constexpr TypeSet kTexts = kAny & ~(bit(DType::c64) | bit(DType::c128));
  table["Cast"] = {kTexts, cast};
  table["CastLike"] = {kTexts, cast};
}

const Family<HostTable> kCastKernels("host", "cast", register_host_cast);

}  // namespace ort
