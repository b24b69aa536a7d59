// Batch normalisation with torch's running statistics, and its gradient.
#include <algorithm>
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// f(channel, i) over x [N, C, D1..].
template <class F>
void each(const KernelCall& c, size_t x, F f) {
  const Split s = split_at(c.sizes(x), 1);
  for (int64_t n = 0, i = 0; n < s.outer; ++n)
    for (int64_t channel = 0; channel < s.size; ++channel)
      for (int64_t k = 0; k < s.inner; ++k) f(static_cast<size_t>(channel), i++);
}

void expect_vectors(const KernelCall& c, size_t first, int64_t channels) {
  for (size_t i = first; i < c.count(); ++i)
    c.require(c.sizes(i) == Sizes{channels}, "input {} has shape {}, expected [{}]", i, c.sizes(i),
              channels);
}

struct Statistics {
  std::vector<double> mean, variance;
};

Statistics batch_statistics(const KernelCall& c, const In<double>& x, double count) {
  const size_t channels = static_cast<size_t>(c.sizes()[1]);
  Statistics s{std::vector<double>(channels), std::vector<double>(channels)};
  each(c, 0, [&](size_t channel, int64_t i) { s.mean[channel] += x[i]; });
  for (double& mean : s.mean) mean /= count;
  each(c, 0, [&](size_t channel, int64_t i) {
    const double centred = x[i] - s.mean[channel];
    s.variance[channel] += centred * centred;
  });
  for (double& variance : s.variance) variance /= count;
  return s;
}

void batch_norm(const KernelCall& c) {
  expect_vectors(c, 1, c.sizes()[1]);
  // Of no elements torch keeps the running statistics.
  const bool training = c.attrs().i("training") != 0 && element_count(c.sizes()) > 0;
  const double epsilon = c.attrs().f("epsilon"), momentum = c.attrs().f("momentum");
  const double count = static_cast<double>(element_count(c.sizes())) /
                       std::max(1.0, static_cast<double>(c.sizes()[1]));
  const In<double> x = c.in<double>(0);
  const auto scale = c.all<double>(1), bias = c.all<double>(2);
  auto running_mean = c.all<double>(3), running_var = c.all<double>(4);
  const Statistics s =
      training ? batch_statistics(c, x, count) : Statistics{running_mean, running_var};
  std::vector<double> inv_std;
  for (const double variance : s.variance) inv_std.push_back(1.0 / std::sqrt(variance + epsilon));
  const Out<double> y = c.out<double>(0);
  each(c, 0, [&](size_t k, int64_t i) {
    y.set(i, (x[i] - s.mean[k]) * inv_std[k] * scale[k] + bias[k]);
  });
  if (training)
    for (size_t k = 0; k < scale.size(); ++k) {
      const double unbiased = s.variance[k] * count / (count - 1.0);
      running_mean[k] += momentum * (s.mean[k] - running_mean[k]);
      running_var[k] += momentum * (unbiased - running_var[k]);
    }
  c.write(1, running_mean);
  c.write(2, running_var);
  c.write(3, s.mean);
  c.write(4, inv_std);
}

// In training dx = s (dy - mean(dy) - n mean(dy n)) with s = scale / std and n the normalised x.
void batch_norm_grad(const KernelCall& c) {
  expect_vectors(c, 2, c.sizes(1)[1]);
  c.require(c.sizes(0) == c.sizes(1), "dy has shape {}, x has shape {}", c.sizes(0), c.sizes(1));
  const In<double> dy = c.in<double>(0), x = c.in<double>(1);
  const auto scale = c.all<double>(2), mean = c.all<double>(3), inv_std = c.all<double>(4);
  std::vector<double> dscale(scale.size()), dbias(scale.size());
  each(c, 1, [&](size_t k, int64_t i) {
    dbias[k] += dy[i];
    dscale[k] += dy[i] * (x[i] - mean[k]) * inv_std[k];
  });
  if (c.wants(0)) {
    const double share =
        c.attrs().i("training") != 0 && element_count(c.sizes(1)) > 0
            ? static_cast<double>(scale.size()) / static_cast<double>(element_count(c.sizes(1)))
            : 0.0;
    const Out<double> dx = c.out<double>(0);
    each(c, 1, [&](size_t k, int64_t i) {
      double slope = dy[i];
      if (share > 0.0) slope -= share * (dbias[k] + (x[i] - mean[k]) * inv_std[k] * dscale[k]);
      dx.set(i, scale[k] * inv_std[k] * slope);
    });
  }
  c.write(1, dscale);
  c.write(2, dbias);
}

}  // namespace

static void register_norm(KernelTable& table) {
  add(table, "ort::BatchNorm", kNumbers, batch_norm);
  add(table, "ort::BatchNormGrad", kNumbers, batch_norm_grad);
}

const Family<KernelTable> kNormKernels("reference", "norm", register_norm);

}  // namespace ort::reference
