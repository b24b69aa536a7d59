// Activations: most are their definition; those with a cheaper or steadier slope have a gradient.
#include <cmath>
#include <numbers>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

const double kSqrtHalf = std::sqrt(0.5);
const double kTanhScale = std::sqrt(2.0 / std::numbers::pi);  // Hendrycks & Gimpel 2016, section 2
constexpr double kTanhCubic = 0.044715;

bool is_tanh(const Attrs& attrs) {
  return attrs.s("approximate") == "tanh";
}

Value gelu_inner(Value x) {
  return kTanhScale * (x + kTanhCubic * (x * x * x));
}

Value gelu(const OpCall& c) {
  const Value x = c.x();
  if (is_tanh(c.attrs())) return 0.5 * x * (1.0 + tanh(gelu_inner(x)));
  return 0.5 * x * (1.0 + erf(x * kSqrtHalf));
}

Value gelu_derivative(const OpCall& c) {
  const Value x = c.x();
  if (is_tanh(c.attrs())) {
    const Value t = tanh(gelu_inner(x));
    const Value inner = kTanhScale * (1.0 + 3.0 * kTanhCubic * (x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
  }
  const Value cdf = 0.5 * (1.0 + erf(x * kSqrtHalf));
  const Value pdf = 1.0 / std::sqrt(2.0 * std::numbers::pi) * exp(-0.5 * (x * x));
  return cdf + x * pdf;
}

Value swish_derivative(const OpCall& c) {
  const double alpha = c.attrs().f("alpha");
  const Value x = alpha == 1.0 ? c.x() : alpha * c.x(), s = sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

void register_saturating(OpSet& ops) {
  ops.op("Tanh")
      .in("x", kFloating)
      .out("y")
      .since(6)
      .elementwise()
      .epilogue(Epilogue::tanh)
      .gradient([](const Backward& b) { return b.dy() * (1.0 - b.y() * b.y()); });
  ops.op("Sigmoid")
      .in("x", kFloating)
      .out("y")
      .since(6)
      .elementwise()
      .epilogue(Epilogue::sigmoid)
      .gradient([](const Backward& b) { return b.dy() * (b.y() * (1.0 - b.y())); });
  ops.op("Softplus")
      .in("x", kFloating)
      .out("y")
      .since(1)
      .elementwise()
      .computes_in(DType::f32)
      .gradient([](const Backward& b) {  // the sigmoid, down to denormals
        const Value x = b.x(), one = number(1.0, x), power = exp(-abs(x));
        const Value below = b.graph().emit1("Less", {x, number(0.0, x)});
        return b.dy() * (where(below, power, one) / (1.0 + power));
      })
      .defined_as(
          [](Value x) { return maximum(x, number(0.0, x)) + unary("ort::Log1p", exp(-abs(x))); });
  ops.op("Softsign")
      .in("x", kFloating)
      .out("y")
      .since(1)
      .elementwise()
      .computes_in(DType::f32)
      .defined_as([](Value x) { return x / (1.0 + abs(x)); });
}

void register_smooth(OpSet& ops) {
  ops.op("Gelu")
      .in("x", kFloating)
      .out("y")
      .since(20)
      .attr("approximate", std::string("none"))
      .elementwise()
      .computes_in(DType::f32)
      .epilogue(Epilogue::gelu, {{"approximate", std::string("none")}})
      .epilogue(Epilogue::gelu_tanh, {{"approximate", std::string("tanh")}})
      .defined_as(gelu)
      .gradient([](const Backward& b) {
        return b.dy() * b.graph().emit1("ort::GeluDerivative", {b.x()},
                                        {{"approximate", b.attrs().s("approximate")}});
      });
  ops.op("Swish")
      .in("x", kFloating)
      .out("y")
      .since(24)
      .attr("alpha", 1.0)
      .elementwise()
      .computes_in(DType::f32)
      .epilogue(Epilogue::silu, {{"alpha", 1.0}})
      .defined_as([](const OpCall& c) {
        const double alpha = c.attrs().f("alpha");
        return c.x() * sigmoid(alpha == 1.0 ? c.x() : alpha * c.x());
      })
      .gradient([](const Backward& b) {
        return b.dy() *
               b.graph().emit1("ort::SwishDerivative", {b.x()}, {{"alpha", b.attrs().f("alpha")}});
      });
  ops.op("Mish")
      .in("x", kFloating)
      .out("y")
      .since(18)
      .elementwise()
      .computes_in(DType::f32)
      .defined_as([](Value x) { return x * tanh(unary("Softplus", x)); })
      .gradient([](const Backward& b) {  // the slope first: dy x alone may be beyond any float
        const Value x = b.x(), t = tanh(unary("Softplus", x));
        return b.dy() * (t + x * sigmoid(x) * (1.0 - t * t));
      });
}

// An instruction each; by the definition they are an erf or a sigmoid and many passes.
void register_derivatives(OpSet& ops) {
  ops.op("ort::GeluDerivative")
      .in("x", kFloating)
      .out("y")
      .attr("approximate", std::string("none"))
      .elementwise()
      .computes_in(DType::f32)
      .defined_as(gelu_derivative);
  ops.op("ort::SwishDerivative")
      .in("x", kFloating)
      .out("y")
      .attr("alpha", 1.0)
      .elementwise()
      .computes_in(DType::f32)
      .defined_as(swish_derivative);
}

void register_piecewise(OpSet& ops) {
  ops.op("Relu")
      .in("x", kNumeric)
      .out("y")
      .since(6)
      .elementwise()
      .cheap()
      .epilogue(Epilogue::relu)
      .gradient([](const Backward& b) { return where(b.y() <= 0.0, number(0.0, b.dy()), b.dy()); });
  ops.op("LeakyRelu")
      .in("x", kFloating)
      .out("y")
      .since(6)
      .attr("alpha", 0.01)
      .elementwise()
      .computes_in(DType::f32)
      .cheap()
      .epilogue(Epilogue::leaky_relu, {}, {"alpha"})
      .defined_as(
          [](const OpCall& c) { return where(c.x() > 0.0, c.x(), c.attrs().f("alpha") * c.x()); });
  ops.op("PRelu")
      .in("x", kNumeric)
      .in("slope", kNumeric)
      .out("y")
      .since(9)
      .elementwise()
      .cheap()
      .computes_in(DType::f32)
      .defined_as([](Value x, Value slope) { return where(x > 0.0, x, slope * x); });
  ops.op("ThresholdedRelu")
      .in("x", kFloating)
      .out("y")
      .since(10)
      .attr("alpha", 1.0)
      .elementwise()
      .cheap()
      .defined_as([](const OpCall& c) {
        return where(c.x() > c.attrs().f("alpha"), c.x(), number(0.0, c.x()));
      });
  ops.op("Shrink")
      .in("x", kNumeric)
      .out("y")
      .since(9)
      .attr("bias", 0.0)
      .attr("lambd", 0.5)
      .elementwise()
      .defined_as([](const OpCall& c) {
        const double bias = c.attrs().f("bias"), lambd = c.attrs().f("lambd");
        // Of integers it is computed with fractions and then cut.
        const Value x = is_floating(c.x().dtype()) ? c.x() : cast(c.x(), DType::f32);
        const Value y = where(x < -lambd, x + bias, where(x > lambd, x - bias, number(0.0, x)));
        return cast(y, c.x().dtype());
      });
}

// Clip with the slope of torch.
void register_hard(OpSet& ops) {
  ops.op("HardSigmoid")
      .in("x", kFloating)
      .out("y")
      .since(6)
      .attr("alpha", 0.2)
      .attr("beta", 0.5)
      .elementwise()
      .computes_in(DType::f32)
      .defined_as([](const OpCall& c) {
        const Value line = c.attrs().f("alpha") * c.x() + c.attrs().f("beta");
        return c.graph().emit1("Clip", {line, number(0.0, line), number(1.0, line)});
      })
      .gradient([](const Backward& b) {  // none at the bounds, as in torch
        const double alpha = b.attrs().f("alpha"), beta = b.attrs().f("beta");
        const Value x = b.x(), inside = logical_and(x > -beta / alpha, x < (1.0 - beta) / alpha);
        return where(inside, b.dy() * alpha, number(0.0, b.dy()));
      });
  ops.op("HardSwish")
      .in("x", kFloating)
      .out("y")
      .since(14)
      .elementwise()
      .computes_in(DType::f32)
      .epilogue(Epilogue::hard_swish)
      .defined_as([](Value x) {
        const Value line = x / 6.0 + 0.5;
        return x * x.graph->emit1("Clip", {line, number(0.0, line), number(1.0, line)});
      })
      .gradient([](const Backward& b) {
        const Value x = b.x(), dy = b.dy(), line = dy * (x / 3.0 + 0.5);
        const Value flat = b.graph().emit1("GreaterOrEqual", {x, number(3.0, x)});
        return where(x <= -3.0, number(0.0, dy), where(flat, dy, line));
      });
  // Clip with the slope zero at its bounds and of NaN: what torch calls hardtanh.
  ops.op("ort::HardTanh")
      .in("x", kNumeric)
      .out("y")
      .attr("low", -1.0)
      .attr("high", 1.0)
      .elementwise()
      .cheap()
      .computes_in_operands()  // the bounds are rounded, as torch's kernel has them
      .epilogue(Epilogue::clip, {}, {"low", "high"})
      .defined_as([](const OpCall& c) {
        const Value low = number(c.attrs().f("low"), c.x()),
                    high = number(c.attrs().f("high"), c.x());
        return c.graph().emit1("Clip", {c.x(), low, high});
      })
      .gradient([](const Backward& b) {
        const Value x = b.x();
        const Value inside = logical_and(x > b.attrs().f("low"), x < b.attrs().f("high"));
        return where(inside, b.dy(), number(0.0, b.dy()));
      });
}

struct Bend {
  double alpha, width, scale;  // scale (x above zero, alpha (exp(x / width) - 1) below)
};

using BendOf = Bend (*)(const Attrs&);

// exp only ever sees x <= 0, so no branch overflows; at zero the slope is the bend's, as in torch,
// and of NaN it is NaN.
void exponential_op(OpSet& ops, std::string_view name, int since, Attrs attrs, BendOf bend_of) {
  OpSchema& schema = ops.op(name).in("x", kFloating).out("y").since(since);
  for (const auto& [attr, value] : attrs) schema.attr(attr, value);
  schema.elementwise()
      .computes_in(DType::f32)
      .defined_as([bend_of](const OpCall& c) {
        const auto [alpha, width, scale] = bend_of(c.attrs());
        const Value x = c.x(), low = minimum(number(0.0, x), x);
        const Value bend = alpha * unary("ort::Expm1", width == 1.0 ? low : low / width);
        const Value y = where(x > 0.0, x, bend);
        return scale == 1.0 ? y : scale * y;
      })
      .gradient([bend_of](const Backward& b) {
        const auto [alpha, width, scale] = bend_of(b.attrs());
        const Value x = b.x(), low = minimum(x, number(0.0, x));
        const Value slope = alpha * scale / width * exp(width == 1.0 ? low : low / width);
        return b.dy() * where(x > 0.0, number(scale, x), slope);
      });
}

void register_exponential(OpSet& ops) {
  exponential_op(ops, "Elu", 6, {{"alpha", 1.0}},
                 [](const Attrs& a) { return Bend{a.f("alpha"), 1.0, 1.0}; });
  exponential_op(ops, "Celu", 12, {{"alpha", 1.0}}, [](const Attrs& a) {
    check(a.f("alpha") != 0.0, "[Celu] attribute 'alpha' is 0, x is divided by it");
    return Bend{a.f("alpha"), a.f("alpha"), 1.0};
  });
  exponential_op(ops, "Selu", 6,
                 {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}},
                 [](const Attrs& a) { return Bend{a.f("alpha"), 1.0, a.f("gamma")}; });
}

}  // namespace

static void register_activation(OpSet& ops) {
  register_saturating(ops);
  register_smooth(ops);
  register_derivatives(ops);
  register_piecewise(ops);
  register_hard(ops);
  register_exponential(ops);
}

const Family<OpSet> kActivationOps("ops", "activation", register_activation);

}  // namespace ort
