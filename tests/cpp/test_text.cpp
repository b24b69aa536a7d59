// print and parse are inverses, and parse says where the text is wrong.
#include "csrc/graph/text.h"

#include <gtest/gtest.h>

#include "csrc/ops/ops.h"
#include "csrc/passes/verify.h"

namespace ort {
namespace {

std::string complaint(const std::string& text) {
  try {
    parse(text, default_ops());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

void expect_round_trip(const std::string& text) {
  const auto graph = parse(text, default_ops());
  verify(*graph, "parse");
  const std::string once = print(*graph);
  EXPECT_EQ(print(*parse(once, default_ops())), once);
}

TEST(Text, RoundTrips) {
  expect_round_trip("graph ()\nreturn ()\n");
  expect_round_trip(
      R"(graph (%x: float32[n, 8] user, %w: float32[8, 4] parameter, %key: uint64[1] key)
  %1 = MatMul(%x, %w)  # a comment
  %2 = Constant() {value=float32[4]{1.0, 2.0, 3.0, 4.0}}
  %3, _, %4 = LayerNormalization(%1, %2) @3 again
  %5 = ort::Dropout(%3, %key) {ratio=0.1, counter=7}
return ("y" = %5, "inv" = %4)
)");
  // no output, an opaque one, sizes as text
  expect_round_trip(
      R"(graph (%x: float32[n, 8] user)
  = aten::check(%x) {schema="aten::check", types=[], effect=1}
  %1, %2 = aten::view(%x) {schema="aten::view", size=["8", "n"], types=["float32[8, n]"]}
  %3 = aten::backward(%2, _) {schema="aten::view", of=[0], types=["float32[n, 8]"]}
return ("y" = %1, "dx" = %3)
)");
}

TEST(Text, KeepsAttributesOfEveryKind) {
  const std::string text = R"(graph (%x: float32[a, b] user)
  %1 = Transpose(%x) {perm=[1, 0]}
  %2 = Gelu(%1) {approximate="tanh"}
  %3 = Constant() {value=float32[3]{1.5, -inf, nan}}
  %4 = Constant() {value=int64[1]{9223372036854775807}}
  %5 = ort::Sizes() {dims=dims[a*b, 2]}
  %6 = Swish(%2) {alpha=0.10000000000000001}
return ("y" = %6, "c" = %3, "i" = %4, "s" = %5)
)";
  const auto graph = parse(text, default_ops());
  expect_round_trip(text);
  const std::string printed = print(*graph);
  for (const char* part : {"perm=[1, 0]", "approximate=\"tanh\"", "9223372036854775807",
                           "dims[a*b, 2]", "alpha=0.10000000000000001", "-inf"})
    EXPECT_SAYS(printed, part);
}

TEST(Text, ReadsTypes) {
  for (const char* text : {"float32[s0, 768]", "int64[]", "bool[..]", "seq(float32[..])", "opaque",
                           "optional(float16[2*s0 - 1])", "bfloat16[max(2, s0)]"})
    EXPECT_EQ(parse_type(text).text(), text);
  EXPECT_THROW(parse_type("float32"), Error);
  EXPECT_THROW(parse_type("float31[2]"), Error);
  EXPECT_THROW(parse_type("float32[2] and more"), Error);
}

TEST(Text, SaysWhereItIsWrong) {
  EXPECT_SAYS(complaint("graph (\n"), "line 2");
  EXPECT_SAYS(complaint("graph ()\n  %1 = Relu(%x)\nreturn ()"), "line 2: '%x' is not defined");
  EXPECT_SAYS(complaint("graph (%x: float32[2] user, %x: float32[2] user)\nreturn ()"),
              "'%x' is defined twice");
  EXPECT_SAYS(complaint("graph ()\nreturn () more"), "unexpected text");
  EXPECT_SAYS(complaint("graph ()\n %1 = Constant() {value=int64[1]{1, 2}}\nreturn ()"),
              "too many elements");
  EXPECT_SAYS(complaint("graph ()\n %1 = Constant() {value=float32[9]x00}\nreturn ()"),
              "too few bytes");
  EXPECT_SAYS(complaint("graph ()\n %1 = Constant() {value=float32[2000]{...}}\nreturn ()"),
              "left out");
  EXPECT_SAYS(complaint("graph (%x: float32[2] user)\n %1 = Relu(%x) {alpha=1.0}\nreturn ()"),
              "[Relu] has no attribute 'alpha'");
}

}  // namespace
}  // namespace ort
