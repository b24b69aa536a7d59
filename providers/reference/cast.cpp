// Casts among all dtypes: numbers of 16 bits and more, narrow ones, and text that is read.
#include "csrc/core/convert.h"
#include "providers/reference/map.h"

namespace ort::reference {
namespace {

void cast_elements(const KernelCall& c) {
  wide(c.dtype(), [&]<class W>() { map1<W>(c, [](W x) { return x; }); });
}

// The input's numbers in W: double for floating ones, else an integer of 64 bits.
template <class W>
std::vector<W> numbers(const KernelCall& c) {
  const DType dtype = c.dtype();
  if (!is_narrow(dtype) && dtype != DType::string) return c.all<W>(0);
  std::vector<W> values;
  const auto* bits = static_cast<const uint8_t*>(c.data(0));
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) {
    if (dtype == DType::string) {
      const std::string_view text = Texts(c, 0)[i];
      if constexpr (std::is_floating_point_v<W>)
        values.push_back(number_in(text));
      else
        values.push_back(static_cast<W>(integer_in(text)));
    } else if constexpr (std::is_floating_point_v<W>) {
      values.push_back(float_of_bits(bits[i], dtype));
    } else {
      values.push_back(static_cast<W>(integer_of_bits(bits[i], dtype)));
    }
  }
  return values;
}

template <class W>
void write(const KernelCall& c, const std::vector<W>& values) {
  const DType dtype = c.out_dtype();
  const bool formats = is_narrow(dtype) || is_half(dtype);
  if (!formats) return c.write(0, values);
  c.expect(0, c.sizes());
  Narrowing how{c.attrs().i("saturate") != 0, rounding_named(c.attrs().s("round_mode"))};
  if (is_half(dtype)) how.saturate = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_narrow_integer(dtype)) {
      static_cast<uint8_t*>(c.out_data())[i] =
          bits_of_integer(number_as<int64_t>(values[i]), dtype);
      continue;
    }
    const uint32_t bits = bits_of_float(static_cast<double>(values[i]), dtype, how);
    if (is_half(dtype))
      static_cast<uint16_t*>(c.out_data())[i] = static_cast<uint16_t>(bits);
    else
      static_cast<uint8_t*>(c.out_data())[i] = static_cast<uint8_t>(bits);
  }
}

bool is_float(DType dtype) {
  return is_floating(dtype) || is_narrow_float(dtype);
}

void any(const KernelCall& c) {
  const DType from = c.dtype(), to = c.out_dtype();
  if (from == to) return copy_all(c);
  // Text is read as what it becomes; a truth is any number but zero.
  const bool real = from == DType::string ? is_float(to) || to == DType::boolean : is_float(from);
  if (real) return write(c, numbers<double>(c));
  if (from == DType::u64) return write(c, numbers<uint64_t>(c));
  write(c, numbers<int64_t>(c));
}

Verdict no_complex(const Node& node) {
  if (is_complex(node.input(0).dtype()) || is_complex(node.output().dtype()))
    return Verdict::no("complex numbers are not cast");
  return Verdict::yes();
}

// A truth is read as no other byte than 0 and 1.
void same_bits(const KernelCall& c) {
  if (c.out_dtype() != DType::boolean) return copy_all(c);
  c.expect(0, c.sizes());
  const auto* from = static_cast<const uint8_t*>(c.data(0));
  auto* to = static_cast<uint8_t*>(c.out_data());
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) to[i] = from[i] != 0;
}

}  // namespace

static void register_cast(KernelTable& table) {
  add(table, "Cast", kNumbers, cast_elements);
  add(table, "Cast", kAny, any, no_complex);
  add(table, "BitCast", kAny, same_bits);
}

const Family<KernelTable> kCastKernels("reference", "cast", register_cast);

}  // namespace ort::reference
