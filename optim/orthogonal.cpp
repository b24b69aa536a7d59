// The Newton-Schulz iteration in the dtype whose products are fast and no coarser than torch's:
// bfloat16 where the processor multiplies it, else float32; float64 for float64.
#include "optim/orthogonal.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

namespace ort::optim {
namespace {

at::ScalarType type_of(DType dtype) {
  if (dtype == DType::f32) return at::kFloat;
  if (dtype == DType::f64) return at::kDouble;
  return dtype == DType::f16 ? at::kHalf : at::kBFloat16;
}

bool multiplies_bfloat16() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// Near the orthogonal matrix of the polar decomposition, singular values within about 0.7 to 1.2.
at::Tensor orthogonal(const at::Tensor& matrix, const NewtonSchulz& by) {
  const bool is_double = matrix.scalar_type() == at::kDouble;
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_double ? matrix : matrix.to(at::kFloat);
  x = x.div(x.norm().clamp_min(by.eps));
  if (!is_double && multiplies_bfloat16()) x = x.to(at::kBFloat16);
  if (tall) x = x.t();
  for (int64_t i = 0; i < by.steps; ++i) {
    const at::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, by.b, by.c), x, by.a, 1.0);
  }
  return tall ? x.t() : x;
}

double rate_of(const Parameter& p, bool like_adamw) {
  const double rows = static_cast<double>(p.rows), columns = static_cast<double>(p.columns);
  if (like_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

void muon_step(std::span<const Parameter> parameters, std::vector<MuonFactors>& factors,
               const NewtonSchulz& iteration, bool like_adamw) {
  std::vector<Parameter> before(parameters.begin(), parameters.end()), after = before;
  std::vector<at::Tensor> directions;
  for (Parameter& p : before) {
    const at::ScalarType type = p.master ? at::kFloat : type_of(p.dtype);
    directions.push_back(p.by_columns ? at::empty({p.columns, p.rows}, type)
                                      : at::empty({p.rows, p.columns}, type));
    p.states[1] = directions.back().mutable_data_ptr();
    p.mean = nullptr;
  }
  step(before, muon_momentum());
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i].count == 0) continue;
    at::Tensor& direction = directions[i];
    direction = orthogonal(direction, iteration).to(type_of(after[i].dtype)).contiguous();
    after[i].grad = direction.mutable_data_ptr();
    after[i].grad_factor = 1.0;
    after[i].zero_grad = false;
    factors[i].rate *= rate_of(after[i], like_adamw);
  }
  step(after, muon());
}

}  // namespace ort::optim
