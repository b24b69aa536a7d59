// Cross entropy over class indices with weights, label smoothing and an ignored index, as torch has
// it.
#include <cmath>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

// Logits [N, C, D1..] or [C] as rows: row (n, d) has its class k at n * classes * inner + k * inner
// + d.
struct Rows {
  Split split;
  std::vector<int64_t> target;
  std::vector<double> weight;
  int64_t ignore;
  double smoothing, weight_sum = 0.0;
  int64_t first(size_t row) const {
    const int64_t r = static_cast<int64_t>(row);
    return r / split.inner * split.size * split.inner + r % split.inner;
  }
  double target_weight(size_t row) const {
    return target[row] == ignore ? 0.0 : weight[static_cast<size_t>(target[row])];
  }
};

Rows rows_of(const KernelCall& c, size_t logits, size_t target, size_t weight) {
  Rows rows{split_at(c.sizes(logits), c.rank(logits) == 1 ? 0 : 1),
            c.ints(target),
            {},
            c.attrs().i("ignore_index"),
            c.attrs().f("label_smoothing")};
  const int64_t classes = rows.split.size;
  c.require(static_cast<int64_t>(rows.target.size()) == rows.split.outer * rows.split.inner,
            "logits have shape {}, target has shape {}", c.sizes(logits), c.sizes(target));
  for (const int64_t t : rows.target)
    c.require(t == rows.ignore || (t >= 0 && t < classes),
              "target {} is out of range for {} classes", t, classes);
  rows.weight = c.has(weight) ? c.all<double>(weight)
                              : std::vector<double>(static_cast<size_t>(classes), 1.0);
  c.require(static_cast<int64_t>(rows.weight.size()) == classes,
            "weight has {} elements, expected {}", rows.weight.size(), classes);
  for (const double w : rows.weight) rows.weight_sum += w;
  return rows;
}

double total_weight(const Rows& rows) {
  double total = 0.0;
  for (size_t r = 0; r < rows.target.size(); ++r) total += rows.target_weight(r);
  return total;
}

void cross_entropy(const KernelCall& c) {
  const Rows rows = rows_of(c, 0, 1, 2);
  const std::vector<double> x = c.all<double>(0);
  const int64_t classes = rows.split.size, step = rows.split.inner;
  std::vector<double> loss(rows.target.size(), 0.0), parts(2 * rows.target.size());
  for (size_t r = 0; r < loss.size(); ++r) {
    const double* row = x.data() + rows.first(r);
    double top = -INFINITY, sum = 0.0, smooth = 0.0;
    for (int64_t k = 0; k < classes; ++k) top = std::fmax(top, row[k * step]);
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(row[k * step] - top);
    parts[2 * r] = top;
    parts[2 * r + 1] = sum;
    if (rows.target[r] == rows.ignore) continue;
    const auto minus_log = [&](int64_t k) { return std::log(sum) - (row[k * step] - top); };
    for (int64_t k = 0; k < classes; ++k)
      smooth += rows.weight[static_cast<size_t>(k)] * minus_log(k);
    const double own = rows.target_weight(r) * minus_log(rows.target[r]);
    loss[r] = (1.0 - rows.smoothing) * own;
    if (rows.smoothing > 0.0) loss[r] += rows.smoothing / static_cast<double>(classes) * smooth;
  }
  c.write(1, parts);
  const std::string& reduction = c.attrs().s("reduction");
  if (reduction == "none") return c.write(0, loss);
  double total = 0.0;
  for (const double value : loss) total += value;
  c.write(0, std::vector<double>{reduction == "mean" ? total / total_weight(rows) : total});
}

void cross_entropy_grad(const KernelCall& c) {
  const Rows rows = rows_of(c, 1, 2, 4);
  const std::string& reduction = c.attrs().s("reduction");
  const std::vector<double> dloss = c.all<double>(0), x = c.all<double>(1),
                            parts = c.all<double>(3);
  const int64_t classes = rows.split.size, step = rows.split.inner;
  c.require(parts.size() == 2 * rows.target.size() &&
                dloss.size() == (reduction == "none" ? rows.target.size() : 1),
            "dloss has shape {}, parts has shape {}, target has shape {}", c.sizes(0), c.sizes(3),
            c.sizes(2));
  const double divisor = reduction == "mean" ? total_weight(rows) : 1.0;
  std::vector<double> dx(x.size(), 0.0);
  for (size_t r = 0; r < rows.target.size(); ++r) {
    const bool ignored = rows.target[r] == rows.ignore;  // torch's zeros are p times zero
    if (ignored && std::isfinite(parts[2 * r]) && std::isfinite(parts[2 * r + 1])) continue;
    const double d = dloss[reduction == "none" ? r : 0] / divisor;
    const double own = (1.0 - rows.smoothing) * rows.target_weight(r);
    const double even = rows.smoothing / static_cast<double>(classes);
    for (int64_t k = 0; k < classes; ++k) {
      const size_t at = static_cast<size_t>(rows.first(r) + k * step);
      const double p = std::exp(x[at] - parts[2 * r]) / parts[2 * r + 1];
      const double hit = k == rows.target[r] ? 1.0 : 0.0;
      if (ignored) {
        dx[at] = NAN;
        continue;
      }
      const double w = rows.weight[static_cast<size_t>(k)];
      const double smooth = even == 0.0 ? 0.0 : even * (p * rows.weight_sum - w);
      dx[at] = d * (own * (p - hit) + smooth);
    }
  }
  c.write(0, dx);
}

}  // namespace

static void register_loss(KernelTable& table) {
  add(table, "ort::CrossEntropy", kNumbers, cross_entropy);
  add(table, "ort::CrossEntropyGrad", kNumbers, cross_entropy_grad);
}

const Family<KernelTable> kLossKernels("reference", "loss", register_loss);

}  // namespace ort::reference
