// Convolutions take a batch norm, a sum and an activation with them.
#include <algorithm>
#include <cmath>

#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

// --- batch norm ---

bool is_finite(Value value) {
  const Tensor* tensor = constant_of(value);
  for (int64_t i = 0; tensor && i < tensor->count(); ++i)
    if (!std::isfinite(element_as_double(*tensor, i))) return false;
  return tensor != nullptr;
}

// A weight of halves would be rounded twice.
Verdict of_constants(const Match& m) {
  if (is_half(m["x"].dtype())) return Verdict::no(format("x has dtype {}", m["x"].dtype()));
  for (const char* name : {"w", "scale", "bias", "mean", "var"})
    if (!is_finite(m[name])) return Verdict::no(format("{} is no finite constant", name));
  const Tensor& var = *constant_of(m["var"]);
  for (int64_t i = 0; i < var.count(); ++i)
    if (!(element_as_double(var, i) + m.attrs("norm").f("epsilon") > 0.0))
      return Verdict::no("a variance is not positive");
  return require(!m["b"] || is_finite(m["b"]), "b is no finite constant");
}

// factor (w x + b - mean) + bias: the factor goes into the weight here, at once, in double.
Value with_batch_norm(const Match& m) {
  const auto number = [&](const char* name, int64_t i) {
    return m[name] ? element_as_double(*constant_of(m[name]), i) : 0.0;
  };
  const Tensor& given = *constant_of(m["w"]);
  const int64_t filters = given.sizes[0], each = given.count() / std::max<int64_t>(filters, 1);
  Tensor w = Tensor::empty(given.dtype, given.sizes), b = Tensor::empty(given.dtype, {filters});
  for (int64_t o = 0; o < filters; ++o) {
    const double epsilon = m.attrs("norm").f("epsilon");
    const double factor = number("scale", o) / std::sqrt(number("var", o) + epsilon);
    set_element(b, o, factor * (number("b", o) - number("mean", o)) + number("bias", o));
    for (int64_t i = o * each; i < (o + 1) * each; ++i)
      set_element(w, i, factor * element_as_double(given, i));
  }
  const Value bias = m.graph().constant(std::move(b));
  return m.graph().emit1("Conv", {m["x"], m.graph().constant(std::move(w)), bias}, m.attrs("conv"));
}

Rule conv_batch_norm() {
  return rule("conv_batch_norm")
      .match([](Pattern& p) {
        const Value y = p.named("conv", p.op("Conv", {p["x"], p["w"], p.maybe("b")}));
        return p.named("norm",
                       p.op("BatchNormalization", {y, p["scale"], p["bias"], p["mean"], p["var"]},
                            {{"training_mode", int64_t{0}}}));
      })
      .when(of_constants)
      .rewrite(with_batch_norm);
}

// --- what a kernel does to each element that it writes ---

// "ort::Conv" where a sum joined before.
Value convolution(Pattern& p, const std::string& op) {
  if (op == "Conv") return p.named("conv", p.op(op, {p["x"], p["w"], p.maybe("b")}));
  const Attrs bare{{"activation", std::string(name_of(Epilogue::none))}};
  return p.named("conv", p.op(op, {p["x"], p["w"], p.maybe("b"), p.maybe("z")}, bare));
}

// Whose sums are float32: in float64 each part is a step.
Verdict has_epilogue(const Match& m) {
  const DType dtype = m["x"].dtype();
  return require(dtype == DType::f32 || is_half(dtype), "x has dtype {}", dtype);
}

Value joined(const Match& m, Value z, const Attrs& more = {}) {
  Attrs attrs = m.attrs("conv");
  for (const auto& [name, attr] : more) attrs.set(name, attr);
  return m.graph().emit1("ort::Conv", {m["x"], m["w"], m["b"], z}, attrs);
}

Rule conv_add() {
  return rule("conv_add")
      .match([](Pattern& p) { return convolution(p, "Conv") + p["y"]; })
      .when([](const Match& m) {
        if (const Verdict v = has_epilogue(m); !v) return v;
        const Type &y = m.root().output().type(), &z = m["y"].type();
        const Type& own = m.node("conv").output().type();
        return require(z == y && own == y, "{} is added to {}", z.text(), own.text());
      })
      .rewrite([](const Match& m) { return joined(m, m["y"]); });
}

std::string name_of_rule(const std::string& op) {
  return op == "Conv" ? "conv" : "conv_add";
}

Value with_activation(const Match& m, const std::string& op, Epilogue epilogue,
                      std::vector<double> numbers) {
  return joined(
      m, op == "Conv" ? Value{} : m["z"],
      {{"activation", std::string(name_of(epilogue))}, {"activation_numbers", std::move(numbers)}});
}

Rule conv_with(const std::string& op, const OpSchema& activation, const OpSchema::Joins& joins) {
  return rule(format("{}_{}", name_of_rule(op), name_of(joins.epilogue)))
      .match([=, name = activation.qualified()](Pattern& p) {
        return p.named("activation", p.op(name, {convolution(p, op)}, joins.when));
      })
      .when(has_epilogue)
      .rewrite([=](const Match& m) {
        return with_activation(m, op, joins.epilogue, joins.numbers_of(m.attrs("activation")));
      });
}

// Bounds that are operands in ONNX.
Rule conv_with_bounds(const std::string& op) {
  return rule(format("{}_bounds", name_of_rule(op)))
      .match([=](Pattern& p) { return p.op("Clip", {convolution(p, op), p["low"], p["high"]}); })
      .when([](const Match& m) {
        const auto low = scalar_of(m["low"]), high = scalar_of(m["high"]);
        if (!low || !high) return Verdict::no("a bound is no constant");
        return has_epilogue(m);
      })
      .rewrite([=](const Match& m) {
        return with_activation(m, op, Epilogue::clip,
                               {*scalar_of(m["low"]), *scalar_of(m["high"])});
      });
}

}  // namespace

// The value before the activation is read by nobody else: in training these fuse where its gradient
// reads the result alone, as that of Relu does. Gelu stays a step: its erf is exact there.
Rules conv_rules(const OpSet& ops) {
  Rules rules{conv_batch_norm(), conv_add()};
  for (const char* op : {"Conv", "ort::Conv"}) {
    rules.push_back(conv_with_bounds(op));
    for (const OpSchema* activation : ops.all())
      for (const OpSchema::Joins& joins : activation->epilogues())
        if (joins.epilogue != Epilogue::gelu) rules.push_back(conv_with(op, *activation, joins));
  }
  return rules;
}

}  // namespace ort::rules
