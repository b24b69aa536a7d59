// Softmax cross entropy over class indices and its gradient, with torch's weights, ignored targets
// and label smoothing. Probabilities are never stored: the gradient makes them again from each
// row's maximum and sum.
#include <cmath>
#include <limits>
#include <numeric>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/runs.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {
namespace {

enum class Reduction { none, sum, mean };

struct Settings {
  int64_t rows = 1, classes = 1, inner = 1;  // logits are [rows / inner, classes, inner]
  int64_t ignore = -100;
  double smoothing = 0;
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
  s.smoothing = r.attrs().f("label_smoothing", 0.0);
  const std::string reduction = r.attrs().s("reduction", "mean");
  s.reduction = reduction == "none"  ? Reduction::none
                : reduction == "sum" ? Reduction::sum
                                     : Reduction::mean;
  s.wide_targets = r.in(target).dtype == DType::i64;
  s.op = r.node().qualified();
  return s;
}

// The vector steps of a row.
template <class T>
struct LossSteps {
  TileStep<T> max{TileOp::row_max, 0}, minus{TileOp::sub, 2}, exp{TileOp::exp, 0};
  TileStep<T> sum{TileOp::row_sum, 0}, dot{TileOp::row_dot, 0}, scale{TileOp::mul, 2};
};

template <class T>
T apply(const TileStep<T>& f, const T* a, const std::type_identity_t<T>* b, int64_t count) {
  T result{};
  f(&result, a, b, nullptr, count);
  return result;
}

// One call's targets and weights.
template <class T>
class Rows {
 public:
  Rows(const Settings& s, const void* target, const T* weight)
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
  T weight_of(int64_t c) const { return weight_ ? weight_[c] : T{1}; }
  const T* weights() const { return weight_; }
  T all_weights() const { return static_cast<T>(all_); }
  double total() const {  // of the targets that count: the mean's divisor
    double sum = 0;
    for (int64_t row = 0; row < s_.rows; ++row)
      if (!ignored(row)) sum += weight_of(target(row));
    return sum;
  }
  // The row's logits in one piece: where they lie, or in `buffer`.
  const T* logits(const Runs<T>& runs, const void* x, int64_t row, T* buffer) const {
    if (s_.inner == 1) return runs.read(x, at(row), s_.classes, buffer);
    for (int64_t c = 0; c < s_.classes; ++c) buffer[c] = runs.number(x, at(row) + c * s_.inner);
    return buffer;
  }
  // The row's gradients from where `room` had them made.
  void put(const Runs<T>& runs, const T* made, void* to, int64_t row) const {
    if (s_.inner == 1) return runs.write(made, to, at(row), s_.classes);
    for (int64_t c = 0; c < s_.classes; ++c) runs.put(made[c], to, at(row) + c * s_.inner);
  }
  T* room(const Runs<T>& runs, void* to, int64_t row, T* buffer) const {
    return s_.inner == 1 ? runs.room(to, at(row), buffer) : buffer;
  }

 private:
  int64_t raw(int64_t row) const {
    return s_.wide_targets ? static_cast<const int64_t*>(target_)[row]
                           : int64_t{static_cast<const int32_t*>(target_)[row]};
  }
  int64_t at(int64_t row) const { return row / s_.inner * s_.classes * s_.inner + row % s_.inner; }
  const Settings& s_;
  const void* target_;
  const T* weight_;
  double all_ = 0;
};

// -log p of the target, smoothed over all classes; `buffer` holds a row.
template <class T>
T row_loss(const Settings& s, const Rows<T>& rows, const LossSteps<T>& steps, int64_t row,
           const T* x, T top, T log_sum, T* buffer) {
  const int64_t t = rows.target(row);
  const T own = rows.weight_of(t) * (log_sum - (x[t] - top));
  if (s.smoothing == 0) return own;
  steps.minus(buffer, x, &top, nullptr, s.classes);
  const T sum = rows.weights() ? apply(steps.dot, buffer, rows.weights(), s.classes)
                               : apply(steps.sum, buffer, nullptr, s.classes);
  const T all = rows.all_weights() * log_sum - sum;
  return static_cast<T>(1 - s.smoothing) * own +
         static_cast<T>(s.smoothing) / static_cast<T>(s.classes) * all;
}

template <class T>
void finish_loss(const Settings& s, const Rows<T>& rows, const Runs<T>& runs, const T* losses,
                 void* loss) {
  if (s.reduction == Reduction::none) return runs.write(losses, loss, 0, s.rows);
  const double sum = std::accumulate(losses, losses + s.rows, 0.0);
  runs.put(s.reduction == Reduction::mean ? sum / rows.total() : sum, loss, 0);
}

template <class T>
std::unique_ptr<Kernel> cross_entropy_of(const Request& r) {
  const Settings s = settings_of(r, 0, 1);
  const bool weighted = r.has(2), wants_parts = r.wants(1);
  const Runs<T> runs(r, 0);
  const LossSteps<T> steps;
  const int most = omp_get_max_threads();
  const size_t numbers = static_cast<size_t>(s.rows + (most * 2 + 1) * s.classes);
  return make_kernel(
      "CrossEntropy",
      [=](const Args& args) {
        T *wide_losses = static_cast<T*>(args.scratch), *wide_weight = wide_losses + s.rows;
        T* buffers = wide_weight + s.classes;
        const T* weight = weighted ? runs.read(args.in[2], 0, s.classes, wide_weight) : nullptr;
        const Rows<T> rows(s, args.in[1], weight);
        T* losses =
            s.reduction == Reduction::none ? runs.room(args.out[0], 0, wide_losses) : wide_losses;
        parallel_for(
            s.rows, s.rows * s.classes * 8,
            [&](int64_t begin, int64_t end, int thread) {
              T* gathered = buffers + thread * 2 * s.classes;
              T* shifted = gathered + s.classes;
              for (int64_t row = begin; row < end; ++row) {
                const T* x = rows.logits(runs, args.in[0], row, gathered);
                const T top = apply(steps.max, x, nullptr, s.classes);
                steps.minus(shifted, x, &top, nullptr, s.classes);
                steps.exp(shifted, shifted, nullptr, nullptr, s.classes);
                const T sum = apply(steps.sum, shifted, nullptr, s.classes);
                if (wants_parts) {
                  output<T>(args, 1)[2 * row] = top;
                  output<T>(args, 1)[2 * row + 1] = sum;
                }
                losses[row] = rows.ignored(row)
                                  ? T{}
                                  : row_loss(s, rows, steps, row, x, top, std::log(sum), shifted);
              }
            },
            most);
        finish_loss(s, rows, runs, losses, args.out[0]);
      },
      numbers * sizeof(T));
}

// g ((1 - e) w_t (p - [t]) + e / C (W p - w)) for every class; p comes as exp(x - top).
template <class T>
void row_gradient(const Settings& s, const Rows<T>& rows, const LossSteps<T>& steps, int64_t row,
                  T g, T sum, T* p) {
  const int64_t t = rows.target(row);
  const T own = g * static_cast<T>(1 - s.smoothing) * rows.weight_of(t);
  const T each = g * static_cast<T>(s.smoothing) / static_cast<T>(s.classes);
  const T factor = (each == 0 ? own : own + each * rows.all_weights()) / sum;
  steps.scale(p, p, &factor, nullptr, s.classes);
  p[t] -= own;
  if (each != 0)
    for (int64_t c = 0; c < s.classes; ++c) p[c] -= each * rows.weight_of(c);
}

template <class T>
std::unique_ptr<Kernel> cross_entropy_grad_of(const Request& r) {
  const Settings s = settings_of(r, 1, 2);
  const bool weighted = r.has(4);
  const Runs<T> runs(r, 1);
  const LossSteps<T> steps;
  const int most = omp_get_max_threads();
  const size_t numbers = static_cast<size_t>((most + 1) * s.classes);
  return make_kernel(
      "CrossEntropyGrad",
      [=](const Args& args) {
        T *wide_weight = static_cast<T*>(args.scratch), *buffers = wide_weight + s.classes;
        const T* weight = weighted ? runs.read(args.in[4], 0, s.classes, wide_weight) : nullptr;
        const Rows<T> rows(s, args.in[2], weight);
        const double total = s.reduction == Reduction::mean ? rows.total() : 1.0;
        parallel_for(
            s.rows, s.rows * s.classes * 8,
            [&](int64_t begin, int64_t end, int thread) {
              T* buffer = buffers + thread * s.classes;
              for (int64_t row = begin; row < end; ++row) {
                T* p = rows.room(runs, args.out[0], row, buffer);
                const T* parts = input<T>(args, 3) + 2 * row;
                if (rows.ignored(row)) {  // torch's zeros are p times zero
                  const bool has_p = std::isfinite(parts[0]) && std::isfinite(parts[1]);
                  std::fill_n(p, s.classes, has_p ? T{} : std::numeric_limits<T>::quiet_NaN());
                } else {
                  const T* x = rows.logits(runs, args.in[1], row, buffer);
                  steps.minus(p, x, parts, nullptr, s.classes);
                  steps.exp(p, p, nullptr, nullptr, s.classes);
                  const bool own = s.reduction == Reduction::none;
                  const double g = runs.number(args.in[0], own ? row : 0) / total;
                  row_gradient(s, rows, steps, row, static_cast<T>(g), parts[1], p);
                }
                rows.put(runs, p, args.out[0], row);
              }
            },
            most);
      },
      numbers * sizeof(T), 1);  // a row of logits is read before it is written
}

std::unique_ptr<Kernel> cross_entropy(const Request& r) {
  return r.in(0).dtype == DType::f64 ? cross_entropy_of<double>(r) : cross_entropy_of<float>(r);
}

std::unique_ptr<Kernel> cross_entropy_grad(const Request& r) {
  return r.in(0).dtype == DType::f64 ? cross_entropy_grad_of<double>(r)
                                     : cross_entropy_grad_of<float>(r);
}

// The parts that are kept for the gradient are float32.
Verdict wide_parts(const Node& node) {
  const bool gradient = node.is("ort::CrossEntropyGrad");
  const Value parts = gradient ? node.input(3) : node.out.size() > 1 ? node.output(1) : Value{};
  if (!parts || parts.dtype() == DType::f32) return Verdict::yes();
  return Verdict::no(format("parts are {}, expected float32", parts.dtype()));
}

void add_rows(KernelList& list, std::unique_ptr<Kernel> (*make)(const Request&)) {
  list.add("rows", kF32 | kHalves, wide_parts, make).add("rows", kF64, make);
}

}  // namespace

static void register_loss(KernelTable& table) {
  add_rows(table.op("ort::CrossEntropy"), cross_entropy);
  add_rows(table.op("ort::CrossEntropyGrad"), cross_entropy_grad);
}

const Family<KernelTable> kLossKernels("cpu", "loss", register_loss);

}  // namespace ort::cpu
