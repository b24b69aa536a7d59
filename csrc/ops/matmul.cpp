// Matrix products: ONNX's MatMul and Gemm, torch's linear, and the product with transposes and
// epilogue that the passes build.
#include <numeric>

#include "csrc/ops/ops.h"

namespace ort {
namespace {

// Shapes of a product whose operands have rank 2 or more after promotion of vectors.
void infer_product(InferContext& c, bool trans_a, bool trans_b) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, written_dtype(c), std::nullopt);
  Dims a = c.dims(0), b = c.dims(1);
  c.require(!a.empty() && !b.empty(), "operands have ranks {} and {}, expected at least 1",
            a.size(), b.size());
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (trans_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (trans_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const Dim k = a.back(), kb = b[b.size() - 2], m = a[a.size() - 2], n = b.back();
  const bool differ = k.value() && kb.value() && !(k == kb);
  c.require(!differ, "a has shape {}, b has shape {}: inner sizes {} and {} differ", c.dims(0),
            c.dims(1), k, kb);
  c.assume(equal_sizes(k, kb), "inner sizes");
  Dims dims =
      c.broadcast(Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2), "batch sizes");
  if (!row) dims.push_back(m);
  if (!column) dims.push_back(n);
  c.out(0, written_dtype(c), dims);
  if (c.has(2)) expect_stretches(c, 2, dims);
}

void infer_gemm(InferContext& c) {
  for (size_t i = 0; i < 2; ++i)
    c.require(!c.ranked(i) || c.rank(i) == 2, "{} has shape {}, expected 2 axes",
              c.node().schema->inputs()[i].name, c.ranked(i) ? c.dims(i) : Dims{});
  infer_product(c, c.attrs().i("transA") != 0, c.attrs().i("transB") != 0);
}

// [.., M, K] as [.. * M, K].
Value flat_rows(Value x) {
  Dims dims = x.dims();
  const Dim last = dims.back();
  dims.pop_back();
  return reshape(x, {product(dims), last});
}

Value product_of(Value a, Value b, bool trans_a, bool trans_b) {
  return a.graph->emit1(
      "ort::MatMul", {a, b, Value{}},
      {{"trans_a", static_cast<int64_t>(trans_a)}, {"trans_b", static_cast<int64_t>(trans_b)}});
}

Outputs matmul_gradient(const Backward& b) {
  Value x = b.x(0), w = b.x(1), dy = b.dy();
  const Dims x_dims = x.dims(), w_dims = w.dims();
  if (x.rank() == 1) {
    x = unsqueeze(x, {0});
    dy = unsqueeze(dy, {w_dims.size() == 1 ? -1 : -2});
  }
  if (w.rank() == 1) {
    w = unsqueeze(w, {1});
    dy = unsqueeze(dy, {-1});
  }
  Outputs grads(2);
  if (b.needs(0)) grads[0] = reshape(sum_to(product_of(dy, w, false, true), x.dims()), x_dims);
  if (b.needs(1)) {
    const bool shared = w.rank() == 2;  // one weight for every batch: a single tall product
    const Value dw = shared ? product_of(flat_rows(x), flat_rows(dy), true, false)
                            : sum_to(product_of(x, dy, true, false), w.dims());
    grads[1] = reshape(dw, w_dims);
  }
  return grads;
}

Outputs linear_gradient(const Backward& b) {
  check(epilogue_of(b.attrs()) == Epilogue::none,
        "ort::Linear with an activation has no gradient: it is "
        "made after differentiation");
  Outputs grads(3);
  if (b.needs(0)) grads[0] = matmul(b.dy(), b.x(1));
  const Value dy = flat_rows(b.dy());
  if (b.needs(1)) grads[1] = product_of(dy, flat_rows(b.x(0)), true, false);
  if (b.needs(2)) grads[2] = reduce_sum(dy, {0}, false);
  return grads;
}

void infer_linear(InferContext& c) {
  if (!c.ranked(0) || !c.ranked(1)) return c.out(0, c.dtype(), std::nullopt);
  Dims dims = c.dims(0);
  const Dims& w = c.dims(1);
  c.require(!dims.empty() && w.size() == 2,
            "x has shape {}, w has shape {}, expected [.., K] and [N, K]", dims, w);
  const bool differ = dims.back().value() && w[1].value() && !(dims.back() == w[1]);
  c.require(!differ, "w has shape {}, expected [N, {}] (last axis of x)", w, dims.back());
  c.assume(equal_sizes(dims.back(), w[1]), "inner sizes");
  expect_dims(c, 2, {w[0]});
  dims.back() = w[0];
  c.out(0, c.dtype(), std::move(dims));
}

Value activated(const OpCall& c, Value y) {
  return c.graph().ops().activated(y, c.attrs());
}

// Each element is a sum over the inner axis of a, which is the last one but where a is transposed.
double product_cost(const Sized& node, bool trans_a) {
  const int64_t axis = trans_a && node.ranked(0) && node.node().input(0).rank() > 1 ? -2 : -1;
  return 2 * node.y() * (node.ranked(0) ? node.size(0, axis) : 1);
}

Value fused_product(const OpCall& c) {
  const auto operand = [&](size_t i) {
    const int64_t to = c.attrs().i("to");
    return to == 0 ? c.x(i) : cast(c.x(i), static_cast<DType>(to));
  };
  Value a = operand(0), b = operand(1);
  if (c.attrs().i("trans_a")) a = swap_last(a);
  if (c.attrs().i("trans_b")) b = swap_last(b);
  Value y = matmul(a, b);
  if (c.attrs().f("alpha") != 1.0) y = y * c.attrs().f("alpha");
  if (c.has(2)) y = y + operand(2);
  return activated(c, y);
}

Value gemm(const OpCall& c) {
  Value a = c.x(0), b = c.x(1);
  if (c.attrs().i("transA")) a = swap_last(a);
  if (c.attrs().i("transB")) b = swap_last(b);
  Value y = matmul(a, b);
  const double alpha = c.attrs().f("alpha"), beta = c.attrs().f("beta");
  if (alpha != 1.0) y = y * alpha;
  if (c.has(2) && beta != 0.0) y = y + (beta == 1.0 ? c.x(2) : c.x(2) * beta);
  return y;
}

// --- products that read one operand ---

using Siblings = std::optional<OpSchema::Siblings>;

// Of one a: the columns of matrices b, with those of a bias that is a row.
Siblings columns_of(const Node& node, bool trans_b) {
  if (node.input(0).rank() < 2 || node.input(1).rank() != 2) return std::nullopt;
  OpSchema::Siblings how{0, {{1, trans_b ? 0 : 1}}, -1};
  if (!node.has_input(2)) return how;
  const Value bias = node.input(2);
  if (bias.rank() != 1 || !(bias.dim(0) == node.output().dim(-1))) return std::nullopt;
  how.joined.push_back({2, 0});
  return how;
}

// The gradients of weights read one b: then it is the rows, which a has as columns.
Siblings siblings_of(const Node& node) {
  if (!node.attrs.i("trans_a")) return columns_of(node, node.attrs.i("trans_b") != 0);
  if (node.input(0).rank() != 2 || node.input(1).rank() != 2 || node.has_input(2))
    return std::nullopt;
  return OpSchema::Siblings{1, {{0, 1}}, 0};
}

template <class Of>
OpSchema::SiblingsOf of_matrices(Of of) {
  return [of](const Node& node) -> Siblings {
    const bool ranked = node.input(0).type().dims && node.input(1).type().dims;
    return ranked && node.output().type().dims ? of(node) : std::nullopt;
  };
}

void register_fused(OpSet& ops) {
  ops.op("ort::MatMul")
      .in("a", kFloating)
      .in("b", kFloating)
      .in_optional("bias", kFloating)
      .out("y", kFloating, "Y")
      .attr("to", int64_t{0})
      .attr("trans_a", int64_t{0})
      .attr("trans_b", int64_t{0})
      .attr("alpha", 1.0)
      .attr("activation", std::string("none"))
      .attr("activation_numbers", std::vector<double>{})
      .cost([](const Sized& node) { return product_cost(node, node.attrs().i("trans_a") != 0); })
      .computes_in(DType::f32)
      .siblings(of_matrices(siblings_of))
      .shape([](InferContext& c) {
        infer_product(c, c.attrs().i("trans_a") != 0, c.attrs().i("trans_b") != 0);
      })
      .defined_as(fused_product);
  ops.op("ort::Linear")
      .in("x", kFloating)
      .in("w", kFloating)
      .in_optional("b", kFloating)
      .out("y")
      .attr("activation", std::string("none"))
      .attr("activation_numbers", std::vector<double>{})
      .cost(matmul_cost)
      .computes_in(DType::f32)
      .siblings(of_matrices([](const Node& node) { return columns_of(node, true); }))
      .shape(infer_linear)
      .defined_as([](const OpCall& c) {
        Value y = matmul(c.x(0), swap_last(c.x(1)));
        if (c.has(2)) y = y + c.x(2);
        return activated(c, y);
      })
      .gradient(linear_gradient);
}

}  // namespace

void infer_matmul(InferContext& c) {
  infer_product(c, false, false);
}

double matmul_cost(const Sized& node) {
  return product_cost(node, false);
}

static void register_matmul(OpSet& ops) {
  ops.op("MatMul")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .out("y")
      .since(9)
      .cost(matmul_cost)
      .computes_in(DType::f32)
      .siblings(of_matrices([](const Node& node) { return columns_of(node, false); }))
      .shape(infer_matmul)
      .gradient(matmul_gradient);
  ops.op("Gemm")
      .in("a", kNumeric)
      .in("b", kNumeric)
      .in_optional("c", kNumeric)
      .out("y")
      .since(9)
      .attr("alpha", 1.0)
      .attr("beta", 1.0)
      .attr("transA", int64_t{0})
      .attr("transB", int64_t{0})
      .cost([](const Sized& node) { return product_cost(node, node.attrs().i("transA") != 0); })
      .computes_in(DType::f32)
      .shape(infer_gemm)
      .defined_as(gemm);
  register_fused(ops);
}

const Family<OpSet> kMatmulOps("ops", "matmul", register_matmul);

}  // namespace ort
