// Written once with Highway and compiled for each vector target. A vector's codes never lie in two
// blocks, as a block has a multiple of 16.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/product/dequantize.cpp"
#include <algorithm>

#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/product/dequantize.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Format = QuantizedFormat;
constexpr int64_t kVectors = 16;  // elements: the most that a vector has
using D = hn::CappedTag<float, kVectors>;
template <class T>
using Codes = hn::Vec<hn::RebindToSigned<T>>;  // one of 32 bits for each element of a vector

float zero_of(const QuantizedBlocks& w, int64_t block) {
  if (w.byte_zeros) return static_cast<float>(w.byte_zeros[block]);
  return w.zeros ? w.zeros[block] : middle_of(w.format);
}

// Where in a byte the k-th of its codes lies.
template <Format kFormat>
constexpr int shift_of(int k) {
  constexpr int kBits = bits_of(kFormat);
  return is_by_table(kFormat) ? 8 - kBits * (k + 1) : kBits * k;
}

// Floats of a block's codes. Of at most 16 different codes a register holds the float of each.
template <Format kFormat, class T>
class BlockFloats {
 public:
  BlockFloats(const QuantizedBlocks& w, int64_t block)
      : scale_(hn::Set(T(), w.scales[block])), zero_(hn::Set(T(), zero_of(w, block))) {
    const T d;
    if constexpr (kLooksUp && is_by_table(kFormat))
      table_ = hn::Mul(hn::LoadU(d, table_of(kFormat).data()), scale_);
    else if constexpr (kLooksUp)
      table_ = hn::Mul(hn::Sub(hn::Iota(d, 0.0f), zero_), scale_);
  }

  hn::Vec<T> of(Codes<T> codes) const {
    const T d;
    if constexpr (kLooksUp)
      return hn::TableLookupLanes(table_, hn::IndicesFromVec(d, codes));
    else if constexpr (is_by_table(kFormat))
      return hn::Mul(looked_up(codes), scale_);
    else if constexpr (kFormat == Format::int8)
      return hn::Mul(hn::ConvertTo(d, codes), scale_);
    else
      return hn::Mul(hn::Sub(hn::ConvertTo(d, codes), zero_), scale_);
  }

 private:
  static constexpr bool kLooksUp = hn::MaxLanes(T()) == kVectors && bits_of(kFormat) <= 4;

  static hn::Vec<T> looked_up(Codes<T> codes) {
    const T d;
    const float* table = table_of(kFormat).data();
    if constexpr (hn::MaxLanes(T()) != 8) {
      return hn::GatherIndex(d, table, codes);
    } else {
      const hn::RebindToSigned<T> integers;
      const auto seven = hn::Set(integers, 7);
      const auto place = hn::IndicesFromVec(d, hn::And(codes, seven));
      const auto low = hn::TableLookupLanes(hn::LoadU(d, table), place);
      const auto high = hn::TableLookupLanes(hn::LoadU(d, table + 8), place);
      return hn::IfThenElse(hn::RebindMask(d, hn::Gt(codes, seven)), high, low);
    }
  }

  hn::Vec<T> scale_, zero_, table_ = hn::Zero(T());
};

// The bytes from `at` on, one for each element of a vector.
template <Format kFormat, class T>
Codes<T> bytes_at(const uint8_t* at) {
  const hn::RebindToSigned<T> integers;
  if constexpr (kFormat == Format::int8)
    return hn::PromoteTo(integers,
                         hn::LoadU(hn::Rebind<int8_t, T>(), reinterpret_cast<const int8_t*>(at)));
  else
    return hn::PromoteTo(integers, hn::LoadU(hn::Rebind<uint8_t, T>(), at));
}

// The k-th codes of bytes.
template <Format kFormat, int k, class T>
Codes<T> codes_of(Codes<T> bytes) {
  constexpr int kBits = bits_of(kFormat);
  if constexpr (kBits == 8) return bytes;
  const auto mask = hn::Set(hn::RebindToSigned<T>(), (1 << kBits) - 1);
  return hn::And(hn::ShiftRight<shift_of<kFormat>(k)>(bytes), mask);
}

// --- Floats in memory ----------------------------------------------------------------------------

// One code of each byte at its lowest bits: bytes of two or four codes in their order.
template <class Half, class VH>
hn::Vec<hn::Twice<Half>> in_turn(Half, VH first, VH second) {
  const hn::Twice<Half> d;
  return hn::InterleaveLower(d, hn::ZeroExtendVector(d, first), hn::ZeroExtendVector(d, second));
}

// Codes of elements from i on, a multiple of 16.
template <Format kFormat>
Codes<D> codes_at(const uint8_t* codes, int64_t i) {
  using Bytes = hn::Rebind<uint8_t, D>;
  const hn::RebindToSigned<D> integers;
  if constexpr (bits_of(kFormat) == 8) {
    return bytes_at<kFormat, D>(codes + i);
  } else if constexpr (bits_of(kFormat) == 4) {
    const hn::Half<Bytes> d;
    const auto both = hn::LoadU(d, codes + i / 2);
    const auto low = hn::And(both, hn::Set(d, uint8_t{15})), high = hn::ShiftRight<4>(both);
    const bool upper = is_by_table(kFormat);
    return hn::PromoteTo(integers, upper ? in_turn(d, high, low) : in_turn(d, low, high));
  } else {
    const hn::Half<hn::Half<Bytes>> d;
    const auto all = hn::LoadU(d, codes + i / 4), mask = hn::Set(d, uint8_t{3});
    const auto even = in_turn(d, hn::And(all, mask), hn::And(hn::ShiftRight<4>(all), mask));
    const auto odd = in_turn(d, hn::And(hn::ShiftRight<2>(all), mask), hn::ShiftRight<6>(all));
    return hn::PromoteTo(integers, in_turn(hn::Half<Bytes>(), even, odd));
  }
}

// Elements [begin, end) of one block, multiples of 16.
template <Format kFormat>
void fill_vectors(const QuantizedBlocks& w, int64_t block, int64_t begin, int64_t end, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const BlockFloats<kFormat, D> floats(w, block);
  for (int64_t i = begin; i < end; i += lanes, to += lanes)
    hn::StoreU(floats.of(codes_at<kFormat>(w.codes, i)), D(), to);
}

template <Format kFormat>
float number_of(const QuantizedBlocks& w, int64_t block, int64_t i) {
  constexpr int kBits = bits_of(kFormat), kEach = 8 / kBits;
  if constexpr (kFormat == Format::int8) return static_cast<int8_t>(w.codes[i]);
  const int shift = shift_of<kFormat>(static_cast<int>(i % kEach));
  const int code = w.codes[i / kEach] >> shift & ((1 << kBits) - 1);
  if constexpr (is_by_table(kFormat)) return table_of(kFormat)[static_cast<size_t>(code)];
  return static_cast<float>(code) - zero_of(w, block);
}

// Any elements of one block.
template <Format kFormat>
void fill_some(const QuantizedBlocks& w, int64_t block, int64_t begin, int64_t end, float* to) {
  const int64_t first = std::min(end, (begin + kVectors - 1) / kVectors * kVectors);
  const int64_t last = std::max(first, end / kVectors * kVectors);
  const auto one_by_one = [&](int64_t from, int64_t until) {
    for (int64_t i = from; i < until; ++i)
      to[i - begin] = number_of<kFormat>(w, block, i) * w.scales[block];
  };
  one_by_one(begin, first);
  fill_vectors<kFormat>(w, block, first, last, to + (first - begin));
  one_by_one(last, end);
}

template <Format kFormat>
void fill_blocks(const QuantizedBlocks& w, int64_t begin, int64_t end, float* to) {
  const int64_t first = (begin + w.block - 1) / w.block, last = end / w.block;
  if (first > last) return fill_some<kFormat>(w, last, begin, end, to);
  const auto at = [&](int64_t i) { return to + (i - begin); };
  if (begin < first * w.block) fill_some<kFormat>(w, first - 1, begin, first * w.block, to);
  for (int64_t block = first, i = first * w.block; block < last; ++block, i += w.block)
    fill_vectors<kFormat>(w, block, i, i + w.block, at(i));
  if (last * w.block < end) fill_some<kFormat>(w, last, last * w.block, end, at(last * w.block));
}

// --- Sums of products ----------------------------------------------------------------------------

// Bytes of a vector's elements hold so many vectors of codes: in a block that has no multiple of
// these, vectors are as much shorter.
template <Format kFormat, class F>
auto by_width(int64_t block, F f) {
  constexpr int64_t kEach = 8 / bits_of(kFormat);
  if (block % (static_cast<int64_t>(hn::Lanes(D())) * kEach) == 0) return f(D());
  return f(hn::CappedTag<float, kVectors / kEach>());
}

// The numbers that meet each byte's first codes, then those of the second ones, and so on.
template <Format kFormat>
void arrange_for(int64_t block, const float* x, int64_t count, float* to) {
  by_width<kFormat>(block, [&]<class T>(T d) {
    constexpr int64_t kEach = 8 / bits_of(kFormat);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < count; i += lanes * kEach)
      for (int64_t k = 0; k < kEach; ++k)
        for (int64_t lane = 0; lane < lanes; ++lane)
          to[i + k * lanes + lane] = x[i + lane * kEach + k];
  });
}

template <Format kFormat, class T>
float dot_of(T d, const QuantizedBlocks& w, int64_t begin, int64_t end, const float* x) {
  constexpr int64_t kEach = 8 / bits_of(kFormat);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t block = begin / w.block;
  for (int64_t i = begin; i < end; ++block) {
    const BlockFloats<kFormat, T> floats(w, block);
    for (const int64_t stop = i + w.block; i < stop; i += lanes * kEach, x += lanes * kEach) {
      const Codes<T> bytes = bytes_at<kFormat, T>(w.codes + i / kEach);
      const auto term = [&]<int k>(hn::Vec<T>& sum) {
        const auto number = floats.of(codes_of<kFormat, k, T>(bytes));
        sum = hn::MulAdd(number, hn::LoadU(d, x + k * lanes), sum);
      };
      term.template operator()<0>(even);
      if constexpr (kEach > 1) term.template operator()<1>(odd);
      if constexpr (kEach > 2) term.template operator()<2>(even);
      if constexpr (kEach > 2) term.template operator()<3>(odd);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

// f is given the format as a constant.
template <class F>
auto by_format(Format format, F f) {
  switch (format) {
    case Format::nf4:
      return f.template operator()<Format::nf4>();
    case Format::fp4:
      return f.template operator()<Format::fp4>();
    case Format::int8:
      return f.template operator()<Format::int8>();
    case Format::uint2:
      return f.template operator()<Format::uint2>();
    case Format::uint4:
      return f.template operator()<Format::uint4>();
    default:
      return f.template operator()<Format::uint8>();
  }
}

void fill(const QuantizedBlocks& w, int64_t begin, int64_t end, float* to) {
  by_format(w.format, [&]<Format kFormat>() { fill_blocks<kFormat>(w, begin, end, to); });
}
void arrange(Format format, int64_t block, const float* x, int64_t count, float* to) {
  by_format(format, [&]<Format kFormat>() { arrange_for<kFormat>(block, x, count, to); });
}
float dot(const QuantizedBlocks& w, int64_t begin, int64_t end, const float* x) {
  return by_format(w.format, [&]<Format kFormat>() {
    return by_width<kFormat>(w.block, [&](auto d) { return dot_of<kFormat>(d, w, begin, end, x); });
  });
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(fill);
HWY_EXPORT(arrange);
HWY_EXPORT(dot);
void dequantize(const QuantizedBlocks& w, int64_t begin, int64_t end, float* to) {
  HWY_DYNAMIC_DISPATCH(fill)(w, begin, end, to);
}
void arrange_for_dots(const QuantizedBlocks& w, const float* x, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(arrange)(w.format, w.block, x, count, to);
}
float quantized_dot(const QuantizedBlocks& w, int64_t begin, int64_t end, const float* x) {
  return HWY_DYNAMIC_DISPATCH(dot)(w, begin, end, x);
}
}  // namespace ort::cpu
#endif
