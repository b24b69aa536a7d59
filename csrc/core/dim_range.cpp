// From what to what a symbolic size may be, when no symbol is negative. dim.cpp simplifies by it,
// the shape rules decide by it what holds for every size.
#include <algorithm>

#include "csrc/core/dim.h"

namespace ort {
namespace {

// From what to what a size may be; nullopt: no bound is known.
struct Range {
  std::optional<int64_t> low, high;
};

using Bound = std::optional<int64_t>;

template <class F>
Bound both(Bound a, Bound b, F f) {
  return a && b ? Bound(f(*a, *b)) : std::nullopt;
}

Bound bounded_mul(Bound a, Bound b) {
  int64_t result = 0;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &result)) return std::nullopt;
  return result;
}

Bound bounded_add(Bound a, Bound b) {
  int64_t result = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &result)) return std::nullopt;
  return result;
}

Range range_of(const Dim& dim);

Range range_of(const Atom& atom) {
  if (atom.kind == Atom::Kind::symbol) return {0, std::nullopt};
  const Range a = range_of(atom.a), b = range_of(atom.b);
  const auto least = [](int64_t x, int64_t y) { return std::min(x, y); };
  const auto most = [](int64_t x, int64_t y) { return std::max(x, y); };
  switch (atom.kind) {
    case Atom::Kind::floor_div: {
      if (!b.low || *b.low < 0) return {};
      const int64_t divisor = std::max<int64_t>(*b.low, 1);  // zero is an error when evaluated
      Range range;
      if (a.low && *a.low >= 0) range.low = b.high && *b.high > 0 ? *a.low / *b.high : 0;
      if (a.low && *a.low < 0) range.low = floor_quotient(*a.low, divisor);
      if (a.high && *a.high >= 0) range.high = *a.high / divisor;
      return range;
    }
    case Atom::Kind::mod:
      if (!b.low || *b.low < 0) return {};
      return {0, b.high ? Bound(*b.high - 1) : std::nullopt};
    case Atom::Kind::min:
      return {both(a.low, b.low, least), a.high && b.high ? both(a.high, b.high, least)
                                         : a.high         ? a.high
                                                          : b.high};
    case Atom::Kind::max:
      return {a.low && b.low ? both(a.low, b.low, most)
              : a.low        ? a.low
                             : b.low,
              both(a.high, b.high, most)};
    default:
      return {both(a.low, b.low, least), both(a.high, b.high, most)};
  }
}

Range range_of(const Dim& dim) {
  Range sum{0, 0};
  for (const auto& [atoms, coefficient] : dim.terms()) {
    Range product{1, 1};
    for (const Atom* atom : atoms) {
      const Range factor = range_of(*atom);
      const bool usual = factor.low && *factor.low >= 0;
      product.low = usual ? bounded_mul(product.low, factor.low) : std::nullopt;
      product.high = usual ? bounded_mul(product.high, factor.high) : std::nullopt;
    }
    // One factor alone may be negative.
    if (atoms.size() == 1) product = range_of(*atoms[0]);
    const Bound low = bounded_mul(coefficient > 0 ? product.low : product.high, coefficient);
    const Bound high = bounded_mul(coefficient > 0 ? product.high : product.low, coefficient);
    sum = {bounded_add(sum.low, low), bounded_add(sum.high, high)};
  }
  return sum;
}

}  // namespace

std::optional<int64_t> lower_bound(const Dim& dim) {
  return range_of(dim).low;
}

}  // namespace ort
