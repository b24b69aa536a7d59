// Determinants, and their gradient for singular matrices too.
#include "csrc/ops/ops.h"

namespace ort {
namespace {

Dims matrices(InferContext& c, size_t input) {
  const Dims& x = c.dims(input);
  c.require(x.size() >= 2, "X has shape {}, expected [.., M, M]", x);
  const Dim &rows = x[x.size() - 2], &columns = x.back();
  c.require(may_be_equal(rows, columns), "X has shape {}, expected square matrices", x);
  c.assume_equal({columns}, {rows}, "columns of a square matrix");
  return x;
}

void infer_det(InferContext& c) {
  if (!c.ranked(0)) return c.out(0, c.dtype(), std::nullopt);
  const Dims x = matrices(c, 0);
  c.out(0, c.dtype(), Dims(x.begin(), x.end() - 2));
}

void infer_cofactors(InferContext& c) {
  if (c.ranked(0)) matrices(c, 0);
  same_dims(c, 0, 0);
}

double cubes(const Sized& c) {
  return c.ranked(0) ? 2 * c.x(0) * c.size(0, -1) : c.x(0);
}

}  // namespace

static void register_det(OpSet& ops) {
  ops.op("Det")
      .in("X", kFloating)
      .out("Y")
      .since(11)
      .cost(cubes)
      .computes_in(DType::f32)
      .shape(infer_det)
      .gradient([](const Backward& b) {
        const Value each = b.graph().emit1("ort::Cofactors", {b.x()});
        return unsqueeze(b.dy(), {-2, -1}) * each;
      });
  // Of each matrix the derivative of its determinant by each element: det(X) inverse(X)^T where it
  // has an inverse.
  ops.op("ort::Cofactors")
      .in("X", kFloating)
      .out("Y")
      .cost(cubes)
      .computes_in(DType::f32)
      .shape(infer_cofactors);
}

const Family<OpSet> kDetOps("ops", "det", register_det);

}  // namespace ort
