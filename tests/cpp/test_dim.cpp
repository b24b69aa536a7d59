// The size algebra: canonical equality, parsing and printing, floor division, checked arithmetic.
#include "csrc/core/dim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "csrc/core/error.h"

namespace ort {
namespace {

const Dim s0 = Dim::symbol("s0"), s1 = Dim::symbol("s1");

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Dim, EqualMeansCanonicallyEqual) {
  EXPECT_EQ(s0 + s1, s1 + s0);
  EXPECT_EQ((s0 + 1) * (s0 - 1), s0 * s0 - 1);
  EXPECT_EQ(s0 * 2 - s0, s0);
  EXPECT_EQ(s0 - s0, Dim(0));
  EXPECT_FALSE(s0 == s1);
  EXPECT_FALSE(s0 == Dim(3));
}

TEST(Dim, ANumberHasAValue) {
  EXPECT_EQ(Dim(7).value(), 7);
  EXPECT_EQ((s0 - s0 + 4).value(), 4);
  EXPECT_FALSE(s0.value().has_value());
  EXPECT_EQ(s0.symbol_name(), "s0");
  EXPECT_FALSE((s0 + 1).symbol_name().has_value());
}

TEST(Dim, TextIsReadBack) {
  const Dim dims[] = {0,
                      -3,
                      s0,
                      s0 * s1 * 12 + s0 - 5,
                      floor_div(s0 + 1, 2) * 2,
                      mod(s0, s1),
                      max(s0 - 1, 0) + min(s0, s1),
                      floor_div(floor_div(s0, 3), s1),
                      mod(s0 * 3, s1 * 2),
                      floor_div(s0, Dim(-2))};
  for (const Dim& dim : dims) EXPECT_EQ(Dim::parse(dim.text()), dim) << dim.text();
}

TEST(Dim, ABroadcastSizeKeepsEachOfItsSizesOnce) {
  const Dim both = broadcast_size(s0, s1);
  EXPECT_EQ(broadcast_size(both, s0), both);
  EXPECT_EQ(broadcast_size(s1, both), both);
  EXPECT_EQ(broadcast_size(s0, s0 * 3), s0 * 3);
  EXPECT_EQ(broadcast_size(s0 * s1, both), s0 * s1);
  for (const auto& [n, k] : {std::pair(1, 5), std::pair(4, 1), std::pair(0, 7)})  // what broadcasts
    EXPECT_EQ(broadcast_size(s0, s0 * s1).evaluate({{"s0", n}, {"s1", k}}), n == 1 ? n * k : n);
  EXPECT_EQ(broadcast_size(s0, min(512, s0)), s0);
  EXPECT_NE(broadcast_size(s0, min(s1, s0)), s0);  // s1 may be 0, and s0 1
  EXPECT_TRUE(is_joined(s0, both) && is_joined(both, both));
  EXPECT_FALSE(is_joined(both, s0) || is_joined(s0, s0 * s1));
}

TEST(Dim, TextDoesNotDependOnTheOrderOfBuilding) {
  EXPECT_EQ((s0 * 2 + s1 + 1).text(), (1 + s1 + s0 + s0).text());
  EXPECT_EQ(max(s0, s1).text(), max(s1, s0).text());
}

TEST(Dim, FloorDivisionAndModulo) {
  EXPECT_EQ(floor_div(-7, 2), Dim(-4));
  EXPECT_EQ(mod(-7, 2), Dim(1));
  EXPECT_EQ(floor_div(7, -2), Dim(-4));
  EXPECT_EQ(floor_div(s0 * 12 * 64, 64), s0 * 12);
  EXPECT_EQ(floor_div(s0 * s1 * 2, s1), s0 * 2);
  EXPECT_EQ(floor_div(s0 + 3, 4), floor_div(s0 - 1, 4) + 1);
  EXPECT_EQ(mod(s0 * 8, 4), Dim(0));
  EXPECT_EQ(floor_div(s0 - 2, 2) + 1, floor_div(s0, 2));
  EXPECT_EQ(floor_div(floor_div(s0, 2), 3), floor_div(s0, 6));
  EXPECT_EQ(floor_div(floor_div(s0 - 1, 2) - 2, 2) + 1, floor_div(s0 - 1, 4));
  EXPECT_FALSE(divide_exactly(s0 * 3, 2).has_value());
  EXPECT_FALSE(divide_exactly(s0 + 1, s0).has_value());
  EXPECT_EQ(divide_exactly(s0 + s1, s0 + s1), Dim(1));
}

constexpr int64_t kCorners[] = {INT64_MIN, INT64_MIN + 1, -3, -2, -1, 0, 1, 2, 3, 5, INT64_MAX};

TEST(CheckedArithmetic, QuotientAndRemainderOfAnyNumbers) {
  for (const int64_t a : kCorners)
    for (const int64_t b : kCorners) {
      if (b == 0) {
        EXPECT_THROW(floor_quotient(a, b), Error);
        EXPECT_THROW(floor_remainder(a, b), Error);
        continue;
      }
      const auto wide = static_cast<__int128>(a);
      const __int128 rest = ((wide % b) + b) % b;
      EXPECT_EQ(floor_remainder(a, b), static_cast<int64_t>(rest)) << a << " " << b;
      if (a == INT64_MIN && b == -1)
        EXPECT_THROW(floor_quotient(a, b), Error);
      else
        EXPECT_EQ(floor_quotient(a, b), static_cast<int64_t>((wide - rest) / b)) << a << " " << b;
    }
}

// What can be said before the sizes are known agrees with what is found when they are.
TEST(Dim, DivisionByAnyNumberAgreesWithItsEvaluation) {
  for (const int64_t a : kCorners)
    for (const int64_t b : kCorners) {
      if (b == 0) continue;
      const Symbols one = {{"s0", 1}, {"b", b}};
      EXPECT_EQ(mod(s0 * a, b).evaluate(one), floor_remainder(a, b)) << a << " " << b;
      EXPECT_EQ(mod(s0 * a, Dim::symbol("b")).evaluate(one), floor_remainder(a, b));
      if (a == INT64_MIN && b == -1)
        EXPECT_THROW(floor_div(s0 * a, b).evaluate(one), Error);
      else
        EXPECT_EQ(floor_div(s0 * a, b).evaluate(one), floor_quotient(a, b)) << a << " " << b;
      const Dim quotient = floor_div(s0 + a, max(s1, 1) * std::max<int64_t>(b, 1));
      EXPECT_LE(lower_bound(quotient).value_or(INT64_MIN),
                floor_quotient(a, std::max<int64_t>(b, 1)));
    }
}

TEST(Dim, QuotientsOfQuotientsAndSums) {
  for (int64_t m = 1; m < 5; ++m)
    for (int64_t n = 1; n < 5; ++n)
      for (int64_t r = -7; r < 8; ++r) {
        const Dim dim = floor_div(floor_div(s0 + r, m) + r - 1, n);
        for (int64_t size = 0; size < 12; ++size)
          EXPECT_EQ(dim.evaluate({{"s0", size}}),
                    floor_quotient(floor_quotient(size + r, m) + r - 1, n))
              << m << " " << n << " " << r << " " << size;
      }
}

TEST(Dim, TheSmallestNumberHasNoOpposite) {
  EXPECT_FALSE(divide_exactly(s0 * INT64_MIN, -1).has_value());
  EXPECT_EQ(divide_exactly(s0 * INT64_MAX, -1), s0 * -INT64_MAX);
  EXPECT_EQ(divide_exactly(s0 * INT64_MIN, INT64_MIN), s0);
  EXPECT_EQ(Dim::parse("(-9223372036854775807-1) % 3").value(), 1);
}

TEST(Dim, EvaluationAgreesWithTheAlgebra) {
  const Dim dim = floor_div(s0 * 3 + 1, s1) + mod(s0, s1) * max(s0, s1) - min(s0, s1);
  for (int64_t a = -3; a < 9; ++a)
    for (int64_t b = 1; b < 6; ++b) {
      const int64_t quotient =
          (3 * a + 1 >= 0 || (3 * a + 1) % b == 0) ? (3 * a + 1) / b : (3 * a + 1) / b - 1;
      const int64_t rest = ((a % b) + b) % b;
      EXPECT_EQ(dim.evaluate({{"s0", a}, {"s1", b}}),
                quotient + rest * std::max(a, b) - std::min(a, b));
    }
}

TEST(Dim, MinAndMaxOfAKnownDifferenceAreOneOfThem) {
  EXPECT_EQ(max(s0 + 2, s0), s0 + 2);
  EXPECT_EQ(min(s0 + 2, s0), s0);
}

TEST(Dim, CollectsItsSymbols) {
  std::set<std::string> names;
  (floor_div(s0, s1) + max(Dim::symbol("s2"), 1)).collect_symbols(names);
  EXPECT_EQ(names, (std::set<std::string>{"s0", "s1", "s2"}));
}

TEST(Dim, ErrorsSayWhatIsWrong) {
  EXPECT_NE(message([] { s0.evaluate({}); }).find("'s0' has no value"), std::string::npos);
  EXPECT_NE(message([] { floor_div(3, 0); }).find("division of size 3 by zero"), std::string::npos);
  EXPECT_NE(message([] { (s0 * s0).evaluate({{"s0", INT64_MAX}}); }).find("overflow"),
            std::string::npos);
  for (const char* text : {"", "s0 +", "(s0", "s0 s1", "3 ^ 2", "max(s0", "99999999999999999999"})
    EXPECT_NE(message([&] { Dim::parse(text); }), "") << text;
  EXPECT_NE(message([] { Dim::parse(std::string(1000, '(')); }).find("nested too deeply"),
            std::string::npos);
}

TEST(CheckedArithmetic, OverflowIsAnError) {
  EXPECT_EQ(checked_add(INT64_MAX - 1, 1), INT64_MAX);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_THROW(checked_add(INT64_MAX, 1), Error);
  EXPECT_THROW(checked_mul(int64_t{1} << 32, int64_t{1} << 31), Error);
  EXPECT_THROW(element_count({int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 0, 5}), 0);
}

TEST(CheckedArithmetic, AProductOfSymbolsMayNotOverflowItsCoefficient) {
  EXPECT_THROW(s0 * INT64_MAX * 2, Error);
}

}  // namespace
}  // namespace ort
