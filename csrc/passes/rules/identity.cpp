// Arithmetic that changes nothing. A result keeps x's shape only where the constant is a scalar.
#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

Verdict keeps_type(const Match& m, const char* name = "x") {
  return require(m.root().output().type() == m[name].type(), "the result is {}, {} is {}",
                 m.root().output().type().text(), name, m[name].type().text());
}

Rule neutral(std::string name, Value (*form)(Value)) {
  return rule(std::move(name))
      .match([form](Pattern& p) { return form(p["x"]); })
      .when([](const Match& m) { return keeps_type(m); })
      .rewrite([](const Match& m) { return m["x"]; });
}

Rule add_zero() {
  return neutral("add_zero", [](Value x) { return x + -0.0; });  // an integer's zero has no sign
}
Rule sub_zero() {
  return neutral("sub_zero", [](Value x) { return x - 0.0; });
}
Rule mul_one() {
  return neutral("mul_one", [](Value x) { return x * 1.0; });
}
Rule div_one() {
  return neutral("div_one", [](Value x) { return x / 1.0; });
}
Rule pow_one() {
  return neutral("pow_one", [](Value x) { return pow(x, 1.0); });
}
Rule double_negation() {
  return neutral("double_negation", [](Value x) { return -(-x); });
}

Rule add_negative() {
  return rule("add_negative")
      .match([](Pattern& p) { return p["a"] + (-p["b"]); })
      .rewrite([](const Match& m) { return m["a"] - m["b"]; });
}

Rule same_cast() {
  return rule("same_cast")
      .match([](Pattern& p) { return p.op("Cast", {p["x"]}); })
      .when([](const Match& m) { return keeps_type(m); })
      .rewrite([](const Match& m) { return m["x"]; });
}

Rule identity() {
  return rule("identity")
      .match([](Pattern& p) { return p.op("Identity", {p["x"]}); })
      .rewrite([](const Match& m) { return m["x"]; });
}

}  // namespace

// In simplification, and in recomposition, whose patterns have products.
Rule pow_two() {
  return rule("pow_two")
      .match([](Pattern& p) { return pow(p["x"], 2.0); })
      .when([](const Match& m) { return keeps_type(m); })
      .rewrite([](const Match& m) { return m["x"] * m["x"]; });
}

Rules identity_rules() {
  return {
      identity(), add_zero(), sub_zero(),        mul_one(),      div_one(),
      pow_one(),  pow_two(),  double_negation(), add_negative(), same_cast(),
  };
}

}  // namespace ort::rules
