// Softmax cross entropy over class indices and its gradient, with torch's weights, ignored targets
// and label smoothing. Probabilities are never stored: the gradient makes them again from each
// row's maximum and sum.
#include <cmath>
#include <numeric>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/tile.h"

namespace ort::cpu {
namespace {

enum class Reduction { none, sum, mean };

struct Settings {
  int64_t rows = 1, classes = 1, inner = 1;  // logits are [rows / inner, classes, inner]
  int64_t ignore = -100;
  float smoothing = 0;
  Reduction reduction = Reduction::mean;
  bool wide_targets = true;
  std::string op;
};

Settings settings_of(const Request& r, size_t logits, size_t target) {
  Settings s;
  const Sizes& x = r.sizes(logits);
  const size_t axis = x.size() == 1 ? 0 : 1;
  s.classes = x[axis];
  for (size_t i = axis + 1; i < x.size(); ++i) s.inner *= x[i];
  s.rows = element_count(r.sizes(target));
  if (s.rows * s.classes != element_count(x))
    r.refuse("logits have shape {}, target has shape {}", x, r.sizes(target));
  s.ignore = r.attrs().i("ignore_index", -100);
  s.smoothing = static_cast<float>(r.attrs().f("label_smoothing", 0.0));
  const std::string reduction = r.attrs().s("reduction", "mean");
  s.reduction = reduction == "none"  ? Reduction::none
                : reduction == "sum" ? Reduction::sum
                                     : Reduction::mean;
  s.wide_targets = r.in(target).dtype == DType::i64;
  s.op = r.node().qualified();
  return s;
}

// The vector steps of a row.
struct Steps {
  TileFunction max = tile_function(TileOp::row_max, 0);
  TileFunction minus = tile_function(TileOp::sub, 2);
  TileFunction exp = tile_function(TileOp::exp, 0);
  TileFunction sum = tile_function(TileOp::row_sum, 0);
  TileFunction dot = tile_function(TileOp::row_dot, 0);
  TileFunction scale = tile_function(TileOp::mul, 2);
};

float apply(TileFunction f, const float* a, const float* b, int64_t count) {
  float result = 0;
  TileArgs t{};
  t.dst = &result;
  t.a = a;
  t.b = b;
  t.count = count;
  t.p = 1.0f;
  f(t);
  return result;
}

void apply_row(TileFunction f, float* dst, const float* a, const float* b, int64_t count) {
  TileArgs t{};
  t.dst = dst;
  t.a = a;
  t.b = b;
  t.count = count;
  f(t);
}

// One call's targets and weights.
class Rows {
 public:
  Rows(const Settings& s, const void* target, const float* weight)
      : s_(s), target_(target), weight_(weight) {
    for (int64_t c = 0; c < s.classes; ++c) all_ += weight_of(c);
  }
  bool ignored(int64_t row) const { return raw(row) == s_.ignore; }
  int64_t target(int64_t row) const {
    const int64_t t = raw(row);
    if (t < 0 || t >= s_.classes) [[unlikely]]
      fail("[{}] target {} is out of range, expected 0 to {} or ignore_index {}", s_.op, t,
           s_.classes - 1, s_.ignore);
    return t;
  }
  float weight_of(int64_t c) const { return weight_ ? weight_[c] : 1.0f; }
  const float* weights() const { return weight_; }
  float all_weights() const { return static_cast<float>(all_); }
  double total() const {  // of the targets that count: the mean's divisor
    double sum = 0;
    for (int64_t row = 0; row < s_.rows; ++row)
      if (!ignored(row)) sum += weight_of(target(row));
    return sum;
  }
  // The row's logits in one piece: where they lie, or gathered into `buffer`.
  const float* logits(const float* x, int64_t row, float* buffer) const {
    const float* first = at(x, row);
    if (s_.inner == 1) return first;
    for (int64_t c = 0; c < s_.classes; ++c) buffer[c] = first[c * s_.inner];
    return buffer;
  }
  template <class T>
  T* at(T* x, int64_t row) const {
    return x + row / s_.inner * s_.classes * s_.inner + row % s_.inner;
  }

 private:
  int64_t raw(int64_t row) const {
    return s_.wide_targets ? static_cast<const int64_t*>(target_)[row]
                           : int64_t{static_cast<const int32_t*>(target_)[row]};
  }
  const Settings& s_;
  const void* target_;
  const float* weight_;
  double all_ = 0;
};

// -log p of the target, smoothed over all classes; `buffer` holds a row.
float row_loss(const Settings& s, const Rows& rows, const Steps& steps, int64_t row, const float* x,
               float top, float log_sum, float* buffer) {
  const int64_t t = rows.target(row);
  const float own = rows.weight_of(t) * (log_sum - (x[t] - top));
  if (s.smoothing == 0) return own;
  apply_row(steps.minus, buffer, x, &top, s.classes);
  const float sum = rows.weights() ? apply(steps.dot, buffer, rows.weights(), s.classes)
                                   : apply(steps.sum, buffer, nullptr, s.classes);
  const float all = rows.all_weights() * log_sum - sum;
  return (1 - s.smoothing) * own + s.smoothing / static_cast<float>(s.classes) * all;
}

void finish_loss(const Settings& s, const Rows& rows, const float* losses, float* loss) {
  const double sum = std::accumulate(losses, losses + s.rows, 0.0);
  *loss = static_cast<float>(s.reduction == Reduction::mean ? sum / rows.total() : sum);
}

std::unique_ptr<Kernel> cross_entropy(const Request& r) {
  const Settings s = settings_of(r, 0, 1);
  const bool weighted = r.has(2), wants_parts = r.wants(1);
  const Steps steps;
  const int most = omp_get_max_threads();
  const size_t floats = static_cast<size_t>(s.rows + most * 2 * s.classes);
  return make_kernel(
      "CrossEntropy",
      [=](const Args& args) {
        const Rows rows(s, args.in[1], weighted ? input<float>(args, 2) : nullptr);
        float* losses = s.reduction == Reduction::none ? output<float>(args)
                                                       : static_cast<float*>(args.scratch);
        float* buffers = static_cast<float*>(args.scratch) + s.rows;
        parallel_for(
            s.rows, s.rows * s.classes * 8,
            [&](int64_t begin, int64_t end, int thread) {
              float* gathered = buffers + thread * 2 * s.classes;
              float* shifted = gathered + s.classes;
              for (int64_t row = begin; row < end; ++row) {
                const float* x = rows.logits(input<float>(args, 0), row, gathered);
                const float top = apply(steps.max, x, nullptr, s.classes);
                apply_row(steps.minus, shifted, x, &top, s.classes);
                apply_row(steps.exp, shifted, shifted, nullptr, s.classes);
                const float sum = apply(steps.sum, shifted, nullptr, s.classes);
                if (wants_parts) {
                  output<float>(args, 1)[2 * row] = top;
                  output<float>(args, 1)[2 * row + 1] = sum;
                }
                losses[row] = rows.ignored(row)
                                  ? 0.0f
                                  : row_loss(s, rows, steps, row, x, top, std::log(sum), shifted);
              }
            },
            most);
        if (s.reduction != Reduction::none) finish_loss(s, rows, losses, output<float>(args));
      },
      floats * sizeof(float));
}

// g ((1 - e) w_t (p - [t]) + e / C (W p - w)) for every class; p comes as exp(x - top).
void row_gradient(const Settings& s, const Rows& rows, const Steps& steps, int64_t row, float g,
                  float sum, float* p) {
  const int64_t t = rows.target(row);
  const float own = g * (1 - s.smoothing) * rows.weight_of(t);
  const float each = g * s.smoothing / static_cast<float>(s.classes);
  const float factor = (own + each * rows.all_weights()) / sum;
  apply_row(steps.scale, p, p, &factor, s.classes);
  p[t] -= own;
  if (each != 0)
    for (int64_t c = 0; c < s.classes; ++c) p[c] -= each * rows.weight_of(c);
}

std::unique_ptr<Kernel> cross_entropy_grad(const Request& r) {
  const Settings s = settings_of(r, 1, 2);
  const bool weighted = r.has(4);
  const Steps steps;
  const int most = omp_get_max_threads();
  const size_t floats = static_cast<size_t>(most * s.classes);
  return make_kernel(
      "CrossEntropyGrad",
      [=](const Args& args) {
        const Rows rows(s, args.in[2], weighted ? input<float>(args, 4) : nullptr);
        const float* dloss = input<float>(args, 0);
        const double total = s.reduction == Reduction::mean ? rows.total() : 1.0;
        parallel_for(
            s.rows, s.rows * s.classes * 8,
            [&](int64_t begin, int64_t end, int thread) {
              float* buffer = static_cast<float*>(args.scratch) + thread * s.classes;
              for (int64_t row = begin; row < end; ++row) {
                float* to = rows.at(output<float>(args), row);
                float* p = s.inner == 1 ? to : buffer;
                if (rows.ignored(row)) {
                  std::fill_n(p, s.classes, 0.0f);
                } else {
                  const float* x = rows.logits(input<float>(args, 1), row, buffer);
                  const float* parts = input<float>(args, 3) + 2 * row;
                  apply_row(steps.minus, p, x, parts, s.classes);
                  apply_row(steps.exp, p, p, nullptr, s.classes);
                  const float g = s.reduction == Reduction::none
                                      ? dloss[row]
                                      : static_cast<float>(dloss[0] / total);
                  row_gradient(s, rows, steps, row, g, parts[1], p);
                }
                if (s.inner != 1)
                  for (int64_t c = 0; c < s.classes; ++c) to[c * s.inner] = p[c];
              }
            },
            most);
      },
      floats * sizeof(float));
}

}  // namespace

void register_loss(KernelTable& table) {
  table.op("ort::CrossEntropy").add("rows", kF32, cross_entropy);
  table.op("ort::CrossEntropyGrad").add("rows", kF32, cross_entropy_grad);
}

}  // namespace ort::cpu
