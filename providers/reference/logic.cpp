// Comparisons, boolean and bit-wise logic.
#include <cmath>

#include "providers/reference/map.h"

namespace ort::reference {
namespace {

template <class F>
Run integers(F f) {
  return [f](const Call& c) {
    if (c.dtype() == DType::u64)
      map2<uint64_t>(c, f);
    else
      map2<int64_t>(c, f);
  };
}

void shift(const Call& c) {
  const bool left = c.attrs().s("direction") == "LEFT";
  const uint64_t width = size_of(c.dtype()) * 8;
  map2<uint64_t>(c, [&](uint64_t x, uint64_t bits) {
    if (bits >= width) return uint64_t{0};
    return left ? x << bits : x >> bits;
  });
}

void flags(const Call& c, const std::function<bool(double)>& f) {
  const In<double> x = c.in<double>(0);
  const Out<int64_t> y = c.out<int64_t>(0);
  c.expect(0, c.sizes());
  for (int64_t i = 0; i < element_count(c.sizes()); ++i) y.set(i, f(x[i]));
}

void is_infinite(const Call& c) {
  const bool negative = c.attrs().i("detect_negative") != 0;
  const bool positive = c.attrs().i("detect_positive") != 0;
  flags(c, [=](double x) { return std::isinf(x) && (x < 0 ? negative : positive); });
}

void check_all(const Call& c) {
  const std::vector<int64_t> ok = c.all<int64_t>(0);
  for (const int64_t each : ok)
    if (!each) fail("[ort::Check] {}", c.attrs().s("error"));
  c.write(0, ok);
}

}  // namespace

void register_logic(Kernels& kernels) {
  kernels.add("Equal", binary([](const Call&, auto a, auto b) { return a == b; }));
  kernels.add("Greater", binary([](const Call&, auto a, auto b) { return a > b; }));
  kernels.add("GreaterOrEqual", binary([](const Call&, auto a, auto b) { return a >= b; }));
  kernels.add("Less", binary([](const Call&, auto a, auto b) { return a < b; }));
  kernels.add("LessOrEqual", binary([](const Call&, auto a, auto b) { return a <= b; }));
  kernels.add("And", integers([](auto a, auto b) { return a && b; }));
  kernels.add("Or", integers([](auto a, auto b) { return a || b; }));
  kernels.add("Xor", integers([](auto a, auto b) { return a != b; }));
  kernels.add("Not", unary([](auto x) { return static_cast<decltype(x)>(x == 0); }));
  kernels.add("BitwiseAnd", integers([](auto a, auto b) { return a & b; }));
  kernels.add("BitwiseOr", integers([](auto a, auto b) { return a | b; }));
  kernels.add("BitwiseXor", integers([](auto a, auto b) { return a ^ b; }));
  kernels.add("BitwiseNot", [](const Call& c) {
    if (c.dtype() == DType::u64) return map1<uint64_t>(c, [](uint64_t x) { return ~x; });
    map1<int64_t>(c, [](int64_t x) { return ~x; });
  });
  kernels.add("BitShift", shift);
  kernels.add("ort::Check", check_all);
  kernels.add("IsNaN", [](const Call& c) { flags(c, [](double x) { return std::isnan(x); }); });
  kernels.add("IsInf", is_infinite);
}

}  // namespace ort::reference
