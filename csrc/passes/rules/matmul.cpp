// Products take their transposes, bias, activation and the dtype they are cast to with them.
#include <algorithm>

#include "csrc/passes/rules/rules.h"

namespace ort::rules {
namespace {

// Swaps the last two axes and leaves the others.
Verdict swaps_last(const Match& m, const char* name) {
  const Node& node = m.node(name);
  if (!node.input(0).type().dims) return Verdict::no("the rank is not known");
  const int64_t rank = node.input(0).rank();
  if (rank < 2) return Verdict::no("a vector has no transpose");
  if (!node.attrs.has("perm")) return require(rank == 2, "rank {} is reversed", rank);
  const auto& perm = node.attrs.ints("perm");
  for (int64_t i = 0; i < rank - 2; ++i)
    if (perm[static_cast<size_t>(i)] != i)
      return Verdict::no(format("perm {} moves a batch axis", perm));
  return require(perm.back() == rank - 2, "perm {} does not swap the last axes", perm);
}

Verdict is_float(const Match& m, const char* name) {
  return require(is_floating(m[name].dtype()), "{} has dtype {}", name, m[name].dtype());
}

Value product(const Match& m, Value a, Value b, bool trans_a, bool trans_b, Value bias = {}) {
  return m.graph().emit1(
      "ort::MatMul", {a, b, bias},
      {{"trans_a", static_cast<int64_t>(trans_a)}, {"trans_b", static_cast<int64_t>(trans_b)}});
}

Verdict matrices(const Match& m) {
  const bool known = m["a"].type().dims && m["b"].type().dims;
  return require(known && m["a"].rank() >= 2 && m["b"].rank() >= 2,
                 "an operand is a vector or of unknown rank");
}

Rule matmul_transposed_right() {
  return rule("matmul_transposed_right")
      .shared()
      .match([](Pattern& p) { return matmul(p["a"], p.named("t", p.op("Transpose", {p["b"]}))); })
      .when([](const Match& m) {
        for (const Verdict& v : {is_float(m, "a"), matrices(m), swaps_last(m, "t")})
          if (!v) return v;
        return Verdict::yes();
      })
      .rewrite([](const Match& m) { return product(m, m["a"], m["b"], false, true); });
}

Rule matmul_transposed_left() {
  return rule("matmul_transposed_left")
      .shared()
      .match([](Pattern& p) { return matmul(p.named("t", p.op("Transpose", {p["a"]})), p["b"]); })
      .when([](const Match& m) {
        for (const Verdict& v : {is_float(m, "a"), matrices(m), swaps_last(m, "t")})
          if (!v) return v;
        return Verdict::yes();
      })
      .rewrite([](const Match& m) { return product(m, m["a"], m["b"], true, false); });
}

// Only a weight that is a matrix: over a batch of matrices the bias is added as any other operand.
Rule matmul_bias() {
  return rule("matmul_bias")
      .match([](Pattern& p) { return matmul(p["a"], p["b"]) + p["bias"]; })
      .when([](const Match& m) {
        for (const Verdict& v : {is_float(m, "a"), matrices(m)})
          if (!v) return v;
        if (!m["bias"].type().dims || m["bias"].rank() != 1)
          return Verdict::no("the bias is no vector");
        if (m["b"].rank() != 2)
          return Verdict::no(format("the weight has rank {}, expected 2", m["b"].rank()));
        return require(m["bias"].dim(0) == m["b"].dim(1), "bias has size {}, expected {}",
                       m["bias"].dim(0), m["b"].dim(1));
      })
      .rewrite([](const Match& m) { return product(m, m["a"], m["b"], false, false, m["bias"]); });
}

Rule gemm_as_matmul() {
  return rule("gemm_as_matmul")
      .match([](Pattern& p) {
        return p.named("gemm",
                       p.op("Gemm", {p["a"], p["b"], p["c"]}, {{"alpha", 1.0}, {"beta", 1.0}}));
      })
      .when([](const Match& m) {
        if (const Verdict v = is_float(m, "a"); !v) return v;
        const Value c = m["c"], y = m.root().output();
        if (!c.type().dims || !y.type().dims) return Verdict::no("a rank is not known");
        return require(c.rank() == 1 && c.dim(0) == y.dim(1), "c is {}, expected a row",
                       c.type().text());
      })
      .rewrite([](const Match& m) {
        const Attrs& attrs = m.attrs("gemm");
        return product(m, m["a"], m["b"], attrs.i("transA") != 0, attrs.i("transB") != 0, m["c"]);
      });
}

Rule product_with(const std::string& product, const OpSchema& activation,
                  const OpSchema::Joins& joins) {
  const std::string op = activation.qualified(), name(name_of(joins.epilogue));
  return rule(format("{}_{}", product.substr(5), name))
      .match([=](Pattern& p) {
        const Value linear = p.op(product, {p["x"], p["w"], p["b"]},
                                  {{"activation", std::string(name_of(Epilogue::none))}});
        return p.named("activation", p.op(op, {p.named("product", linear)}, joins.when));
      })
      .rewrite([=](const Match& m) {
        Attrs attrs = m.attrs("product");
        attrs.set("activation", name);
        attrs.set("activation_numbers", joins.numbers_of(m.attrs("activation")));
        return m.graph().emit1(product, {m["x"], m["w"], m["b"]}, attrs);
      });
}

// One for each activation whose entry says that it joins. The pre-activation is read by nobody
// else: in training its gradient reads it, so these fuse only where no backward asks.
Rules linear_activations(const OpSet& ops) {
  Rules rules;
  for (const char* product : {"ort::Linear", "ort::MatMul"})
    for (const OpSchema* activation : ops.all())
      for (const OpSchema::Joins& joins : activation->epilogues())
        rules.push_back(product_with(product, *activation, joins));
  return rules;
}

// A half product that is cast to float32, as a weight's gradient under autocast is: its sums are
// float32, and are written so.
Rule written_wide(const char* op, std::function<Value(Pattern&)> product) {
  return rule(format("{}_written_wide", std::string_view(op).substr(5)))
      .match([=](Pattern& p) { return p.op("Cast", {p.named("product", product(p))}); })
      .when([](const Match& m) {
        const DType from = m["a"].dtype(), to = m.root().output().dtype();
        return require(is_half(from) && to == DType::f32, "the cast is from {} to {}", from, to);
      })
      .rewrite([=](const Match& m) {
        const Node& product = m.node("product");
        std::vector<Value> in;
        for (size_t i = 0; i < product.in.size(); ++i) in.push_back(product.input(i));
        Attrs attrs = product.attrs;
        attrs.set("to", static_cast<int64_t>(DType::f32));
        return m.graph().emit(op, in, attrs)[0];
      });
}

Rules products_written_wide() {
  const Attrs same{{"to", int64_t{0}}};
  return {
      written_wide(
          "ort::MatMul",
          [=](Pattern& p) { return p.op("ort::MatMul", {p["a"], p["b"], p.maybe("bias")}, same); }),
      written_wide("ort::ConvGradW",
                   [=](Pattern& p) { return p.op("ort::ConvGradW", {p["a"], p["b"]}, same); }),
  };
}

// --- sums of products with few terms, as those that give one gradient back through adapters ---

// Both weights have few rows, also beside their columns, and the operands fit side by side: what is
// put side by side is small beside the results that need no addition.
Verdict are_thin(const Match& m) {
  constexpr int64_t kMost = 64, kOfColumns = 8;
  for (const auto& [u, w] : {std::pair{"u1", "w1"}, std::pair{"u2", "w2"}}) {
    if (const Verdict v = is_float(m, u); !v) return v;
    if (!m[u].type().dims || !m[w].type().dims || m[u].rank() < 2 || m[w].rank() != 2)
      return Verdict::no(format("{} is no matrix", w));
    const std::optional<int64_t> rows = m[w].dim(0).value();
    const std::optional<int64_t> columns = m[w].dim(1).value();
    if (!rows || !columns || *rows > std::min(kMost, *columns / kOfColumns))
      return Verdict::no(format("{} is {}, expected at most {} rows and {} times as many columns",
                                w, m[w].type().text(), kMost, kOfColumns));
  }
  Dims u1 = m["u1"].dims(), u2 = m["u2"].dims();
  u1.pop_back();
  u2.pop_back();
  return require(u1 == u2 && m["w1"].dim(1) == m["w2"].dim(1), "one product is stretched");
}

// u1 w1 + u2 w2 as [u1 u2] [w1; w2].
Value added(const Match& m) {
  return matmul(concat({m["u1"], m["u2"]}, m["u1"].rank() - 1), concat({m["w1"], m["w2"]}, 0));
}

Rule thin_products_added() {
  return rule("thin_products_added")
      .match([](Pattern& p) { return matmul(p["u1"], p["w1"]) + matmul(p["u2"], p["w2"]); })
      .when(are_thin)
      .rewrite(added);
}

// The same with others added between. Of two products in the inner sum the first order of operands
// that fits is a match, so there is a rule for each.
Rule thin_products_in_sum(int between, bool first_left) {
  const auto other = [](int i) { return format("y{}", i); };
  return rule(format("thin_products_in_sum_{}_{}", between, first_left ? "left" : "right"))
      .match([=](Pattern& p) {
        const Value first = matmul(p["u1"], p["w1"]);
        Value sum = first_left ? first + p["y0"] : p["y0"] + first;
        for (int i = 1; i <= between; ++i) sum = sum + p[other(i)];
        return sum + matmul(p["u2"], p["w2"]);
      })
      .when([=](const Match& m) {
        for (int i = 0; i <= between; ++i)
          if (!(m[other(i)].type() == m.root().output().type()))
            return Verdict::no(format("{} is stretched", other(i)));
        return are_thin(m);
      })
      .rewrite([=](const Match& m) {
        Value sum = m["y0"];
        for (int i = 1; i <= between; ++i) sum = sum + m[other(i)];
        return sum + added(m);
      });
}

}  // namespace

Rules product_rules(const OpSet& ops) {
  Rules rules{
      gemm_as_matmul(),
      matmul_bias(),
      matmul_transposed_right(),
      matmul_transposed_left(),
  };
  for (Rule& rule : products_written_wide()) rules.push_back(std::move(rule));
  rules.push_back(thin_products_added());
  for (const int between : {0, 1, 2})
    for (const bool left : {true, false}) rules.push_back(thin_products_in_sum(between, left));
  for (Rule& rule : linear_activations(ops)) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace ort::rules
