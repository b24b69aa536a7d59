// Activations written by hand, as models spell them.
#include <cmath>
#include <numbers>

#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

Verdict is_float_input(const Match& m) {
  return require(is_floating(m["x"].dtype()), "x has dtype {}, expected a float", m["x"].dtype());
}

Rule to_gelu(std::string name, std::string form, std::function<Value(Pattern&)> pattern) {
  return rule(std::move(name))
      .match(std::move(pattern))
      .when(is_float_input)
      .rewrite([form](const Match& m) {
        return m.graph().emit1("Gelu", {m["x"]}, {{"approximate", form}});
      });
}

Rule gelu_from_erf() {
  return to_gelu("gelu_from_erf", "none",
                 [](Pattern& p) { return p["x"] * 0.5 * (erf(p["x"] / std::sqrt(2.0)) + 1.0); });
}

Rule gelu_from_erf_half_outside() {
  return to_gelu("gelu_from_erf_half_outside", "none",
                 [](Pattern& p) { return p["x"] * (erf(p["x"] / std::sqrt(2.0)) + 1.0) * 0.5; });
}

// transformers' NewGELU, after pow(x, 3) came as a Pow.
Rule gelu_from_tanh() {
  return to_gelu("gelu_from_tanh", "tanh", [](Pattern& p) {
    const Value inner = (p["x"] + pow(p["x"], 3.0) * 0.044715) * std::sqrt(2.0 / std::numbers::pi);
    return p["x"] * 0.5 * (tanh(inner) + 1.0);
  });
}

Rule swish_from_sigmoid() {
  return rule("swish_from_sigmoid")
      .match([](Pattern& p) { return p["x"] * sigmoid(p["x"]); })
      .when(is_float_input)
      .rewrite([](const Match& m) { return m.graph().emit1("Swish", {m["x"]}); });
}

// torch's rsqrt arrives as two ops; the quotient is one instruction more exact.
Rule reciprocal_of_sqrt() {
  return rule("reciprocal_of_sqrt")
      .match([](Pattern& p) { return reciprocal(sqrt(p["x"])); })
      .rewrite([](const Match& m) { return 1.0 / sqrt(m["x"]); });
}

}  // namespace

Rules activation_rules() {
  return {
      reciprocal_of_sqrt(), gelu_from_erf(),      gelu_from_erf_half_outside(),
      gelu_from_tanh(),     swish_from_sigmoid(),
  };
}

}  // namespace ort::rules
