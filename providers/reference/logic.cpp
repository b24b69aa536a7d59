// Comparisons, boolean and bit-wise logic.
#include <cmath>

#include "providers/reference/map.h"

namespace ort::reference {
namespace {

template <class F>
Run integers(F f) {
  return [f](const KernelCall& c) {
    if (c.dtype() == DType::u64)
      map2<uint64_t>(c, f);
    else
      map2<int64_t>(c, f);
  };
}

// By a negative number, or by all bits there are, everything goes: the sign is what fills in.
void shift(const KernelCall& c) {
  const bool left = c.attrs().s("direction") == "LEFT";
  const auto width = static_cast<int64_t>(size_of(c.dtype()) * 8);
  if (c.dtype() == DType::u64)
    return map2<uint64_t>(c, [&](uint64_t x, uint64_t bits) {
      if (bits >= 64) return uint64_t{0};
      return left ? x << bits : x >> bits;
    });
  map2<int64_t>(c, [&](int64_t x, int64_t bits) {
    if (bits < 0 || bits >= width) return !left && x < 0 ? int64_t{-1} : int64_t{0};
    return left ? static_cast<int64_t>(static_cast<uint64_t>(x) << bits) : x >> bits;
  });
}

void flags(const KernelCall& c, const std::function<bool(double)>& f) {
  const In<double> x = c.in<double>(0);
  const Out<int64_t> y = c.out<int64_t>(0);
  c.expect(0, c.sizes());
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) y.set(i, f(x[i]));
}

void is_infinite(const KernelCall& c) {
  const bool negative = c.attrs().i("detect_negative") != 0;
  const bool positive = c.attrs().i("detect_positive") != 0;
  flags(c, [=](double x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

void same_texts(const KernelCall& c) {
  const Sizes& to = c.out_sizes();
  const Texts a(c, 0), b(c, 1);
  const Out<int64_t> y = c.out<int64_t>(0);
  walk(to, {broadcast_strides(c, c.sizes(0), to), broadcast_strides(c, c.sizes(1), to)},
       [&](int64_t i, const Sizes& at) { y.set(i, a[at[0]] == b[at[1]]); });
}

void check_all(const KernelCall& c) {
  const std::vector<int64_t> ok = c.all<int64_t>(0);
  for (const int64_t each : ok)
    if (!each) fail("[ort::Check] {}", c.attrs().s("error"));
  c.write(0, ok);
}

}  // namespace

static void register_logic(KernelTable& table) {
  add(table, "Equal", kNumbers, binary([](const KernelCall&, auto a, auto b) { return a == b; }));
  add(table, "Equal", bit(DType::string), same_texts);
  add(table, "Greater", kNumbers, binary([](const KernelCall&, auto a, auto b) { return a > b; }));
  add(table, "GreaterOrEqual", kNumbers,
      binary([](const KernelCall&, auto a, auto b) { return a >= b; }));
  add(table, "Less", kNumbers, binary([](const KernelCall&, auto a, auto b) { return a < b; }));
  add(table, "LessOrEqual", kNumbers,
      binary([](const KernelCall&, auto a, auto b) { return a <= b; }));
  add(table, "And", kNumbers, integers([](auto a, auto b) { return a && b; }));
  add(table, "Or", kNumbers, integers([](auto a, auto b) { return a || b; }));
  add(table, "Xor", kNumbers, integers([](auto a, auto b) { return a != b; }));
  add(table, "Not", kNumbers, unary([](auto x) { return static_cast<decltype(x)>(x == 0); }));
  add(table, "BitwiseAnd", kNumbers, integers([](auto a, auto b) { return a & b; }));
  add(table, "BitwiseOr", kNumbers, integers([](auto a, auto b) { return a | b; }));
  add(table, "BitwiseXor", kNumbers, integers([](auto a, auto b) { return a ^ b; }));
  add(table, "BitwiseNot", kNumbers, [](const KernelCall& c) {
    if (c.dtype() == DType::u64) return map1<uint64_t>(c, [](uint64_t x) { return ~x; });
    map1<int64_t>(c, [](int64_t x) { return ~x; });
  });
  add(table, "BitShift", kNumbers, shift);
  add(table, "ort::Check", kNumbers, check_all);
  add(table, "IsNaN", kNumbers,
      [](const KernelCall& c) { flags(c, [](double x) { return std::isnan(x); }); });
  add(table, "IsInf", kNumbers, is_infinite);
}

const Family<KernelTable> kLogicKernels("reference", "logic", register_logic);

}  // namespace ort::reference
