// Element-wise arithmetic and functions of one or two inputs (ONNX opset 26 meanings).
#include <cmath>
#include <numbers>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

constexpr double kPi = std::numbers::pi;

// Division truncates, which is the floor where neither is negative.
std::optional<Dim> quotient(const Dim& a, const Dim& b) {
  const auto x = a.value(), y = b.value();
  if (b.is(0) || (x == INT64_MIN && y == -1)) return std::nullopt;
  if (x && y) return Dim(*x / *y);
  const auto never_negative = [](const Dim& dim) { return lower_bound(dim).value_or(-1) >= 0; };
  if (never_negative(b))
    return never_negative(a) ? floor_div(a, b)
                             : floor_div(max(a, 0), b) - floor_div(max(Dim(0) - a, 0), b);
  if (never_negative(Dim(0) - b)) return Dim(0) - *quotient(a, Dim(0) - b);
  return std::nullopt;
}

Value zero(Value like) {
  return number(0.0, like);
}

Outputs pow_gradient(const Backward& b) {
  const Value dy = b.dy(), x = b.x(0), p = b.x(1);
  Outputs grads(2);
  if (b.needs(0)) {
    const auto exponent = scalar_of(p);
    if (exponent == 2.0) {
      grads[0] = dy * (2.0 * x);
    } else if (exponent && *exponent != 0.0) {
      grads[0] = dy * (*exponent * pow(x, *exponent - 1.0));
    } else {
      const Value power = cast(p, x.dtype());
      grads[0] = where(equal(power, zero(power)), zero(dy), dy * (power * pow(x, power - 1.0)));
    }
  }
  if (b.needs(1)) {
    const Value flat = logical_and(equal(x, zero(x)), p >= 0.0);
    const Value slope = b.y() * log(x);
    grads[1] = dy * where(flat, zero(slope), slope);
  }
  return grads;
}

// As torch.maximum: a tie shares the gradient, and beside a NaN both have all of it.
Outputs pair_gradient(const Backward& b, std::string_view loses) {
  const Value a = b.x(0), other = b.x(1), dy = b.dy();
  const Value shared = where(equal(a, other), dy * 0.5, dy);
  return {b.needs(0) ? where(b.graph().emit1(loses, {a, other}), zero(dy), shared) : Value{},
          b.needs(1) ? where(b.graph().emit1(loses, {other, a}), zero(dy), shared) : Value{}};
}

// Ties share the gradient evenly.
Outputs extremum_gradients(const Backward& b, std::string_view loses) {
  const size_t count = b.node().in.size();
  if (count == 2) return pair_gradient(b, loses);
  std::vector<Value> hits;
  Value total;
  for (size_t i = 0; i < count; ++i) {
    hits.push_back(cast(equal(b.x(i), b.y()), b.dy().dtype()));
    total = total ? total + hits[i] : hits[i];
  }
  Outputs grads;
  for (const Value& hit : hits) grads.push_back(count == 1 ? b.dy() : b.dy() * hit / total);
  return grads;
}

void register_arithmetic(OpSet& ops) {
  ops.op("Add")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .out("y")
      .since(7)
      .elementwise()
      .cheap()
      .on_sizes([](const Dim& a, const Dim& b) { return a + b; })
      .commutative()
      .gradient([](const Backward& b) { return Outputs{b.dy(), b.dy()}; });
  ops.op("Sub")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .out("y")
      .since(7)
      .elementwise()
      .cheap()
      .on_sizes([](const Dim& a, const Dim& b) { return a - b; })
      .gradient([](const Backward& b) { return Outputs{b.dy(), b.needs(1) ? -b.dy() : Value{}}; });
  ops.op("Mul")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .out("y")
      .since(7)
      .elementwise()
      .cheap()
      .on_sizes([](const Dim& a, const Dim& b) { return a * b; })
      .commutative()
      .gradient([](const Backward& b) {
        return Outputs{b.needs(0) ? b.dy() * b.x(1) : Value{},
                       b.needs(1) ? b.dy() * b.x(0) : Value{}};
      });
  ops.op("Div")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .out("y")
      .since(7)
      .elementwise()
      .on_sizes(quotient)
      .gradient([](const Backward& b) {
        return Outputs{b.needs(0) ? b.dy() / b.x(1) : Value{},
                       b.needs(1) ? -b.dy() * (b.y() / b.x(1)) : Value{}};
      });
}

void register_power(OpSet& ops) {
  ops.op("Pow")
      .in("x", kNumeric)
      .in("exponent", kNumeric, "P")
      .out("y")
      .since(12)
      .elementwise()
      .gradient(pow_gradient);
  ops.op("Mod")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .attr("fmod", int64_t{0})
      .out("y")
      .since(10)
      .elementwise()
      .differentiable_inputs({0})
      .gradient([](const Backward& b) { return b.dy(); });
}

void register_variadic(OpSet& ops) {
  ops.op("Max")
      .in_variadic("x", kNumeric)
      .out("y")
      .since(8)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) { return extremum_gradients(b, "Less"); });
  ops.op("Min")
      .in_variadic("x", kNumeric)
      .out("y")
      .since(8)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) { return extremum_gradients(b, "Greater"); });
  const auto sum = [](const OpCall& c) {
    Value total = c.x(0);
    for (size_t i = 1; i < c.count(); ++i) total = total + c.x(i);
    return total;
  };
  ops.op("Sum").in_variadic("x", kFloating).out("y").since(8).elementwise().defined_as(sum);
  ops.op("Mean")
      .in_variadic("x", kFloating)
      .out("y")
      .since(8)
      .elementwise()
      .defined_as([sum](const OpCall& c) { return sum(c) / static_cast<double>(c.count()); });
}

using Slope = std::function<Value(const Backward&)>;

OpSchema& unary_op(OpSet& ops, std::string_view name, TypeSet types, Slope slope) {
  return ops.op(name)
      .in("x", types)
      .out("y")
      .since(6)
      .elementwise()
      .gradient([slope](const Backward& b) { return b.dy() * slope(b); });
}

// A step function: its gradient is zero wherever it exists, but it is there, as in torch.
void step_op(OpSet& ops, std::string_view name, TypeSet types) {
  ops.op(name)
      .in("x", types)
      .out("y")
      .since(6)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) { return zeros_like(b.x()); });
}

void register_functions(OpSet& ops) {
  ops.op("Neg")
      .in("x", kNumeric)
      .out("y")
      .since(6)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) { return -b.dy(); });
  ops.op("Identity")
      .in("x", kAnything)
      .out("y", kAnything)
      .view()
      .shape([](InferContext& c) {
        c.out(0, c.type(0));
        if (const auto known = c.contents(0)) c.out_contents(0, *known);
      })
      .gradient([](const Backward& b) { return b.dy(); });
  // Of NaN it is zero, as in torch.
  unary_op(ops, "Abs", kNumeric, [](const Backward& b) {
    return where(unary("IsNaN", b.x()), number(0, b.x()), sign(b.x()));
  }).cheap();
  unary_op(ops, "Exp", kFloating, [](const Backward& b) { return b.y(); });
  ops.op("Log").in("x", kFloating).out("y").since(6).elementwise().gradient([](const Backward& b) {
    return b.dy() / b.x();
  });
  ops.op("Sqrt").in("x", kFloating).out("y").since(6).elementwise().gradient([](const Backward& b) {
    return b.dy() / (2.0 * b.y());
  });
  unary_op(ops, "Reciprocal", kFloating, [](const Backward& b) { return -(b.y() * b.y()); });
  unary_op(ops, "Erf", kFloating, [](const Backward& b) {
    return 2.0 / std::sqrt(kPi) * exp(-(b.x() * b.x()));
  }).computes_in(DType::f32);
  unary_op(ops, "Sin", kFloating, [](const Backward& b) { return cos(b.x()); });
  unary_op(ops, "Cos", kFloating, [](const Backward& b) { return -sin(b.x()); });
  unary_op(ops, "Tan", kFloating, [](const Backward& b) { return 1.0 + b.y() * b.y(); });
  unary_op(ops, "Asin", kFloating,
           [](const Backward& b) { return 1.0 / sqrt(1.0 - b.x() * b.x()); });
  unary_op(ops, "Acos", kFloating,
           [](const Backward& b) { return -1.0 / sqrt(1.0 - b.x() * b.x()); });
  unary_op(ops, "Atan", kFloating, [](const Backward& b) { return 1.0 / (1.0 + b.x() * b.x()); });
  unary_op(ops, "Sinh", kFloating, [](const Backward& b) { return unary("Cosh", b.x()); });
  unary_op(ops, "Cosh", kFloating, [](const Backward& b) { return unary("Sinh", b.x()); });
  unary_op(ops, "Asinh", kFloating,
           [](const Backward& b) { return 1.0 / sqrt(b.x() * b.x() + 1.0); });
  unary_op(ops, "Acosh", kFloating,
           [](const Backward& b) { return 1.0 / sqrt(b.x() * b.x() - 1.0); });
  unary_op(ops, "Atanh", kFloating, [](const Backward& b) { return 1.0 / (1.0 - b.x() * b.x()); });
  step_op(ops, "Sign", kNumeric);
  step_op(ops, "Floor", kFloating);
  step_op(ops, "Ceil", kFloating);
  step_op(ops, "Round", kFloating);
}

// What ONNX lacks: functions that keep their precision near zero, or at powers of two. ONNX gets
// their definitions, which are no patterns: log(1 + x) as a user wrote it stays what it is.
void precise_op(OpSet& ops, std::string_view name, Value (*form)(Value), Slope gradient) {
  ops.op(name)
      .in("x", kFloating)
      .out("y")
      .elementwise()
      .computes_in(DType::f32)
      .defined_as([form](const OpCall& c) {
        if (c.graph().is_pattern()) throw NotAPattern("what a user wrote is not made more precise");
        return form(c.x());
      })
      .gradient([gradient](const Backward& b) { return gradient(b); });
}

void register_precise(OpSet& ops) {
  precise_op(
      ops, "ort::Log1p", [](Value x) { return log(x + 1.0); },
      [](const Backward& b) { return b.dy() / (b.x() + 1.0); });
  precise_op(
      ops, "ort::Expm1", [](Value x) { return exp(x) - 1.0; },
      [](const Backward& b) { return b.dy() * (b.y() + 1.0); });
  precise_op(
      ops, "ort::Log2", [](Value x) { return log(x) / std::numbers::ln2; },
      [](const Backward& b) { return b.dy() / (b.x() * std::numbers::ln2); });
}

// A value and its slope for x: where torch's backward multiplies by what another formula gives.
void register_slope(OpSet& ops) {
  ops.op("ort::WithSlope")
      .in("x", kFloating)
      .in("value", kFloating)
      .in("slope", kFloating)
      .out("y")
      .shape([](InferContext& c) {
        same_dims(c, 0, 0);
        if (!c.ranked(0)) return;
        expect_stretches(c, 1, c.dims(0));
        expect_stretches(c, 2, c.dims(0));
      })
      .cheap()
      .defined_as([](Value x, Value value, Value) {
        return value.dims() == x.dims() ? value : expand(value, x.dims());
      })
      .gradient([](const Backward& b) {
        Outputs grads(3);
        grads[0] = b.dy() * b.x(2);
        return grads;
      });
}

void infer_clip(InferContext& c) {
  same_dims(c, 0, 0);
  c.assume_scalar(1, "elements of min");
  c.assume_scalar(2, "elements of max");
}

// Numbers that are chosen among sizes, where the condition is known.
void choose_contents(InferContext& c) {
  const auto chosen = c.ints(0);
  const auto a = c.contents(1), b = c.contents(2);
  if (!chosen || !a || !b || a->empty() || b->empty() || chosen->empty()) return;
  const size_t count = std::max({chosen->size(), a->size(), b->size()});
  const auto at = [&](const auto& of, size_t i) { return of[of.size() == 1 ? 0 : i]; };
  for (const size_t part : {chosen->size(), a->size(), b->size()})
    if (part != 1 && part != count) return;
  Dims contents;
  for (size_t i = 0; i < count; ++i) contents.push_back(at(*chosen, i) ? at(*a, i) : at(*b, i));
  c.out_contents(0, std::move(contents));
}

void infer_where(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1) || !c.ranked(2)) return c.out(0, c.dtype(1), std::nullopt);
  const Dims both = c.broadcast(c.dims(1), c.dims(2), "shapes");
  c.out(0, c.dtype(1), c.broadcast(c.dims(0), both, "shapes"));
  choose_contents(c);
}

void register_choice(OpSet& ops) {
  ops.op("Where")
      .in("condition", kBool, "B")
      .in("a")
      .in("b")
      .out("y")
      .since(9)
      .shape(infer_where)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) {
        const Value none = zero(b.dy());
        return Outputs{Value{}, b.needs(1) ? where(b.x(0), b.dy(), none) : Value{},
                       b.needs(2) ? where(b.x(0), none, b.dy()) : Value{}};
      });
  ops.op("Clip")
      .in("x", kNumeric)
      .in_optional("min", kNumeric)
      .in_optional("max", kNumeric)
      .out("y")
      .since(12)
      .shape(infer_clip)
      .elementwise()
      .cheap()
      .differentiable_inputs({0})
      .gradient([](const Backward& b) {
        Value inside;
        if (b.has(1)) inside = b.graph().emit1("GreaterOrEqual", {b.x(0), b.x(1)});
        if (b.has(2)) {
          const Value below = b.graph().emit1("LessOrEqual", {b.x(0), b.x(2)});
          inside = inside ? logical_and(inside, below) : below;
        }
        return inside ? where(inside, b.dy(), zero(b.dy())) : b.dy();
      });
}

// Strings that are made, not moved, have no owner in a plan.
bool makes_strings(const Node& node) {
  const auto is_text = [](Value value) {
    return value && value.type().is_tensor() && value.dtype() == DType::string;
  };
  return node.has_input(0) && is_text(node.output()) && !is_text(node.input(0));
}

void register_cast(OpSet& ops) {
  ops.op("Cast")
      .in("x", kAny, "X")
      .out("y", kAny, "Y")
      .attr_required("to")
      .attr("saturate", int64_t{1})
      .attr("round_mode", std::string("up"))
      .since(9)
      .shape([](InferContext& c) {
        const int64_t to = c.attrs().i("to");
        c.require(known_dtype(to), "attribute 'to' is {}, which is no dtype", to);
        c.out(0, static_cast<DType>(to), c.type(0).dims);
        const auto known = c.contents(0);
        if (known && is_integer(static_cast<DType>(to))) c.out_contents(0, *known);
      })
      .allocates(makes_strings)
      .elementwise()
      .cheap()
      .gradient([](const Backward& b) {
        return is_floating(b.x().dtype()) ? cast(b.dy(), b.x().dtype()) : Value{};
      });
  ops.op("CastLike")
      .in("x", kAny, "X")
      .in("like", kAny, "Y")
      .out("y", kAny, "Y")
      .attr("saturate", int64_t{1})
      .attr("round_mode", std::string("up"))
      .since(15)
      .allocates(makes_strings)
      .shape([](InferContext& c) { c.out(0, c.dtype(1), c.type(0).dims); })
      .differentiable_inputs({0})
      .defined_as([](const OpCall& c) {
        return c.graph().emit1("Cast", {c.x()},
                               {{"to", static_cast<int64_t>(c.x(1).dtype())},
                                {"saturate", c.attrs().i("saturate")},
                                {"round_mode", c.attrs().s("round_mode")}});
      });
}

}  // namespace

static void register_elementwise(OpSet& ops) {
  register_arithmetic(ops);
  register_power(ops);
  register_variadic(ops);
  register_functions(ops);
  register_precise(ops);
  register_slope(ops);
  register_choice(ops);
  register_cast(ops);
}

const Family<OpSet> kElementwiseOps("ops", "elementwise", register_elementwise);

}  // namespace ort
