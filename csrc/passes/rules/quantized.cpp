// Products of what was integers a moment ago are made of the integers. Only where nothing is
// differentiated: no gradient flows through them.
#include <algorithm>

#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

// A tensor of integers between its scales, as the node `name`.
Value dequantized(Pattern& p, const std::string& name) {
  return p.named(name, p.op("DequantizeLinear",
                            {p[name + "_q"], p[name + "_scale"], p.maybe(name + "_zero")}));
}

bool is_byte(Value value) {
  return value.dtype() == DType::i8 || value.dtype() == DType::u8;
}

bool is_one(Value scale) {
  const auto& dims = scale.type().dims;
  return dims && (dims->empty() || (dims->size() == 1 && dims->front() == Dim(1)));
}

Verdict of_bytes(const Match& m, const std::string& name) {
  const Value q = m[name + "_q"], scale = m[name + "_scale"];
  if (!is_byte(q)) return Verdict::no(format("{} is made of {}", name, q.dtype()));
  if (scale.dtype() != DType::f32)
    return Verdict::no(format("the scale of {} is {}", name, scale.dtype()));
  return require(q.type().dims.has_value(), "the rank of {} is not known", name);
}

// One scale, or one for each place of the axis.
Verdict scaled_along(const Match& m, const std::string& name, int64_t axis) {
  if (const Verdict bytes = of_bytes(m, name); !bytes) return bytes;
  const Value scale = m[name + "_scale"];
  if (is_one(scale)) return Verdict::yes();
  const int64_t rank = m[name + "_q"].rank(), given = m.attrs(name).i("axis");
  const bool fits = scale.type().dims && scale.rank() == 1 && (given + rank) % rank == axis;
  return require(fits, "{} has scales of shape {} along axis {}, expected one, or those of axis {}",
                 name, scale.type().text(), given, axis);
}

Verdict scaled_once(const Match& m, const std::string& name) {
  if (const Verdict bytes = of_bytes(m, name); !bytes) return bytes;
  return require(is_one(m[name + "_scale"]), "{} has more than one scale", name);
}

// Both scales, as one number, or as many as the weight has.
Value factor(const Match& m) {
  const Value x = reshape(m["x_scale"], {}), w = m["w_scale"];
  return x * (is_one(w) ? reshape(w, {}) : w);
}

Value channels(Value each, size_t rank) {
  if (each.dims().empty()) return each;
  Dims beside(rank, Dim(1));
  beside[1] = each.dim(0);
  return reshape(each, beside);
}

Rule matmul_of_bytes() {
  return rule("matmul_of_bytes")
      .match([](Pattern& p) { return p.op("MatMul", {dequantized(p, "x"), dequantized(p, "w")}); })
      .shared()
      .when([](const Match& m) {
        if (const Verdict x = scaled_once(m, "x"); !x) return x;
        const auto& dims = m["w_q"].type().dims;
        if (!dims || dims->size() < 2 || m["x_q"].rank() < 2)
          return Verdict::no("an operand is a vector, or of unknown rank");
        if (dims->size() > 2) return scaled_once(m, "w");
        return scaled_along(m, "w", 1);
      })
      .rewrite([](const Match& m) {
        const Value sums =
            m.graph().emit1("MatMulInteger", {m["x_q"], m["w_q"], m["x_zero"], m["w_zero"]});
        return cast(sums, DType::f32) * factor(m);
      });
}

Rule gemm_of_bytes() {
  return rule("gemm_of_bytes")
      .match([](Pattern& p) {
        return p.named("gemm",
                       p.op("Gemm", {dequantized(p, "x"), dequantized(p, "w"), p.maybe("c")}));
      })
      .shared()
      .when([](const Match& m) {
        if (const Verdict x = scaled_once(m, "x"); !x) return x;
        return scaled_along(m, "w", m.attrs("gemm").i("transB") != 0 ? 0 : 1);
      })
      .rewrite([](const Match& m) {
        const Attrs& attrs = m.attrs("gemm");
        const auto as_asked = [&](const char* name, const char* asks) {
          return attrs.i(asks) != 0 ? swap_last(m[name]) : m[name];
        };
        const Value x = as_asked("x_q", "transA"), w = as_asked("w_q", "transB");
        const Value sums = m.graph().emit1("MatMulInteger", {x, w, m["x_zero"], m["w_zero"]});
        Value y = cast(sums, DType::f32) * factor(m);
        const double alpha = attrs.f("alpha"), beta = attrs.f("beta");
        if (alpha != 1.0) y = y * alpha;
        return !m["c"] ? y : beta == 1.0 ? y + m["c"] : y + m["c"] * beta;
      });
}

Rule conv_of_bytes() {
  return rule("conv_of_bytes")
      .match([](Pattern& p) {
        return p.named("conv",
                       p.op("Conv", {dequantized(p, "x"), dequantized(p, "w"), p.maybe("b")}));
      })
      .shared()
      .when([](const Match& m) {
        if (const Verdict x = scaled_once(m, "x"); !x) return x;
        return scaled_along(m, "w", 0);
      })
      .rewrite([](const Match& m) {
        const size_t rank = m["w_q"].dims().size();
        const Value sums = m.graph().emit1(
            "ConvInteger", {m["x_q"], m["w_q"], m["x_zero"], m["w_zero"]}, m.attrs("conv"));
        const Value y = cast(sums, DType::f32) * channels(factor(m), rank);
        return m["b"] ? y + channels(m["b"], rank) : y;
      });
}

// Whether the larger of two integers is the larger number: a scale below zero turns them round.
Verdict keeps_order(const Match& m, const std::string& name) {
  const Tensor* scale = constant_of(m[name + "_scale"]);
  return require(scale && scale->count() == 1 && element_as_double(*scale, 0) > 0.0,
                 "the scale of {} is not known to be above zero", name);
}

// What only moves elements, or takes the largest, moves them as integers.
Rule moved_before(const std::string& op, bool has_shape, bool by_order = false) {
  return rule(op + "_of_bytes")
      .match([=](Pattern& p) {
        const Value x = dequantized(p, "x");
        return p.named("moved", has_shape ? p.op(op, {x, p["shape"]}) : p.op(op, {x}));
      })
      .when([=](const Match& m) {
        if (m.node("moved").out.size() > 1) return Verdict::no("it has a second result");
        if (const Verdict once = scaled_once(m, "x"); !once) return once;
        return by_order ? keeps_order(m, "x") : Verdict::yes();
      })
      .rewrite([=](const Match& m) {
        const Value shape = has_shape ? m["shape"] : Value{};
        const Attrs& attrs = m.attrs("moved");
        const Value y = has_shape ? m.graph().emit1(op, {m["x_q"], shape}, attrs)
                                  : m.graph().emit1(op, {m["x_q"]}, attrs);
        return m.graph().emit1("DequantizeLinear", {y, m["x_scale"], m["x_zero"]}, m.attrs("x"));
      });
}

// A weight with a scale for each place of an axis is transposed as integers.
Rule transpose_of_channels() {
  return rule("transpose_of_channels")
      .match([](Pattern& p) { return p.named("moved", p.op("Transpose", {dequantized(p, "x")})); })
      .when([](const Match& m) {
        if (const Verdict bytes = of_bytes(m, "x"); !bytes) return bytes;
        const auto& dims = m["x_scale"].type().dims;
        return require(dims && dims->size() == 1, "it has no scales along an axis");
      })
      .rewrite([](const Match& m) {
        const Attrs& attrs = m.attrs("moved");
        const Value y = m.graph().emit1("Transpose", {m["x_q"]}, attrs);
        const auto& perm = attrs.list<int64_t>("perm");  // empty: reversed
        const int64_t rank = m["x_q"].rank(), axis = (m.attrs("x").i("axis") + rank) % rank;
        Attrs along = m.attrs("x");
        along.set("axis", perm.empty()
                              ? rank - 1 - axis
                              : std::distance(perm.begin(), std::ranges::find(perm, axis)));
        return m.graph().emit1("DequantizeLinear", {y, m["x_scale"], m["x_zero"]}, along);
      });
}

// Rows of a table are gathered as integers.
Rule gather_of_bytes() {
  return rule("gather_of_bytes")
      .match([](Pattern& p) {
        return p.named("gather", p.op("Gather", {dequantized(p, "x"), p["ids"]}));
      })
      .shared()
      .when([](const Match& m) { return scaled_once(m, "x"); })
      .rewrite([](const Match& m) {
        const Value rows = m.graph().emit1("Gather", {m["x_q"], m["ids"]}, m.attrs("gather"));
        return m.graph().emit1("DequantizeLinear", {rows, m["x_scale"], m["x_zero"]}, m.attrs("x"));
      });
}

bool same_number(Value a, Value b) {
  if (!a || !b) return !a && !b;
  const Tensor *x = constant_of(a), *y = constant_of(b);
  if (!x || !y) return a == b;
  return x->dtype == y->dtype && x->count() == 1 && y->count() == 1 &&
         element_as_double(*x, 0) == element_as_double(*y, 0);
}

// Integers that become floats and then the same integers.
Rule quantized_again() {
  return rule("quantized_again")
      .match([](Pattern& p) {
        return p.named("again",
                       p.op("QuantizeLinear", {dequantized(p, "x"), p["scale"], p.maybe("zero")}));
      })
      .shared()
      .when([](const Match& m) {
        if (const Verdict x = scaled_once(m, "x"); !x) return x;
        const bool same = same_number(m["scale"], m["x_scale"]) &&
                          same_number(m["zero"], m["x_zero"]) &&
                          m.root().output().dtype() == m["x_q"].dtype();
        return require(same, "the scales or zero points differ");
      })
      .rewrite([](const Match& m) { return m["x_q"]; });
}

}  // namespace

bool is_dequantized(const Node& node) {
  return node.op == "DequantizeLinear";
}

Rules quantized_rules() {
  return {moved_before("MaxPool", false, true),
          moved_before("Flatten", false),
          moved_before("Transpose", false),
          transpose_of_channels(),
          moved_before("Reshape", true),
          gather_of_bytes(),
          quantized_again(),
          matmul_of_bytes(),
          gemm_of_bytes(),
          conv_of_bytes()};
}

}  // namespace ort::rules
