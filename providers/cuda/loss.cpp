// Softmax cross entropy over class indices and its gradient. Probabilities are never stored: the
// gradient makes them again from each row's maximum and sum.
#include <algorithm>

#include "providers/cuda/late_kernel.h"
#include "providers/cuda/tile/form.h"

namespace ort::cuda {
namespace {

constexpr int kFinishThreads = 512;

struct Settings {
  int64_t rows = 1, classes = 1, inner = 1;  // logits are [rows / inner, classes, inner]
  int64_t ignore = -100;
  double smoothing = 0;
  std::string reduction;
  int row_threads = 32, rows_at_once = 4;
  std::string types;                       // of the text
  size_t number = 4, wide = 4, index = 8;  // bytes of these types
  bool weighted = false;

  Reach logits(const void* data) const { return reach(data, rows * classes, number); }
  Reach targets(const void* data) const { return reach(data, rows, index); }
  Reach weights(const Args& args, size_t at) const {
    return weighted ? reach(args.in[at], classes, number) : Reach{nullptr, 0};
  }
  Reach parts(const void* data) const { return reach(data, data ? rows * 2 : 0, wide); }

  Grid grid(const Gpu& gpu) const {
    return grid_for(gpu, rows, rows_at_once, row_threads * rows_at_once);
  }
};

Settings settings_of(const Request& r, size_t logits, size_t target, int weight) {
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
  s.reduction = r.attrs().s("reduction", "mean");
  if (s.classes > 1024) {
    s.row_threads = 512;
    s.rows_at_once = 1;
  }
  const DType dtype = r.in(logits).dtype;
  s.number = size_of(dtype);
  s.wide = dtype == DType::f64 ? 8 : 4;
  s.index = size_of(r.in(target).dtype);
  s.weighted = r.has(static_cast<size_t>(weight));
  s.types = format(
      "typedef {} Number; typedef {} Wide; typedef {} Index;\n"
      "constexpr int kRow = {}, kRows = {}, kFinish = {}; constexpr bool kWeighted = {};",
      type_name(dtype), dtype == DType::f64 ? "double" : "float", type_name(r.in(target).dtype),
      s.row_threads, s.rows_at_once, kFinishThreads, s.weighted ? "true" : "false");
  return s;
}

// What both texts have: a row's target and weights, and the mean's divisor.
constexpr char kCommon[] = R"(
inline Wide weight_of(const Number* weight, i64 c) {
  if constexpr (kWeighted) return as<Wide>(load(weight, c));
  else return Wide(1);
}
struct TotalArgs { const Index* target; const Number* weight; double* total; i64 rows, classes, ignore; };
ORT_KERNEL(total, TotalArgs, kFinish) {
  double sum = 0;
  for (i64 row = thread(); row < a.rows; row += threads()) {
    const i64 t = (i64)load(a.target, row);
    if (t != a.ignore && t >= 0 && t < a.classes) sum += (double)weight_of(a.weight, t);
  }
  sum = row_sum<kFinish>(sum);
  if (thread() == 0) store(a.total, 0, sum);
}
)";

constexpr char kLoss[] = R"(
struct Args {
  const Number* x; const Index* target; const Number* weight; Number* loss; Wide* parts; Wide* losses;
  i32* failure; i64 mark, rows, classes, inner, ignore; double smoothing; i64 each;
};
ORT_KERNEL(run, Args, kRow * kRows) {
  const u32 lane = thread() % kRow, own = thread() / kRow;
  for (i64 first = (i64)block() * kRows; first < a.rows; first += (i64)blocks() * kRows) {
    const i64 row = first + own;
    const bool there = row < a.rows;
    const i64 base = row / a.inner * a.classes * a.inner + row % a.inner;
    Wide top = lowest<Wide>();
    if (there) for (i64 c = lane; c < a.classes; c += kRow) top = op::max(top, as<Wide>(load(a.x, base + c * a.inner)));
    top = row_max<kRow>(top);
    Wide sum = 0, spread = 0, weights = 0;
    if (there) for (i64 c = lane; c < a.classes; c += kRow) {
      const Wide x = as<Wide>(load(a.x, base + c * a.inner)) - top, w = weight_of(a.weight, c);
      sum += op::exp(x); spread += w * x; weights += w;
    }
    sum = row_sum<kRow>(sum); spread = row_sum<kRow>(spread); weights = row_sum<kRow>(weights);
    if (!there || lane != 0) continue;
    const i64 t = (i64)load(a.target, row);
    Wide loss = 0;
    if (t != a.ignore && (t < 0 || t >= a.classes)) fail_with(a.failure, a.mark);
    else if (t != a.ignore) {
      const Wide log_sum = op::log(sum);
      loss = weight_of(a.weight, t) * (log_sum - (as<Wide>(load(a.x, base + t * a.inner)) - top));
      if (a.smoothing != 0)
        loss = (Wide)(1 - a.smoothing) * loss + (Wide)a.smoothing / (Wide)a.classes * (weights * log_sum - spread);
    }
    if (a.parts) { store(a.parts, 2 * row, top); store(a.parts, 2 * row + 1, sum); }
    if (a.each) store(a.loss, row, as<Number>(loss));
    else store(a.losses, row, loss);
  }
}
struct FinishArgs { const Wide* losses; const double* total; Number* loss; i64 rows, mean; };
ORT_KERNEL(finish, FinishArgs, kFinish) {
  double sum = 0;
  for (i64 row = thread(); row < a.rows; row += threads()) sum += (double)load(a.losses, row);
  sum = row_sum<kFinish>(sum);
  if (thread() == 0) store(a.loss, 0, as<Number>(a.mean ? sum / load(a.total, 0) : sum));
}
)";

// g ((1 - e) w_t (p - [t]) + e / C (W p - w)) for every class.
constexpr char kGradient[] = R"(
struct Args {
  const Number* dloss; const Number* x; const Index* target; const Wide* parts; const Number* weight;
  Number* dx; const double* total; i32* failure; i64 mark, rows, classes, inner, ignore;
  double smoothing; i64 each, mean;
};
ORT_KERNEL(run, Args, kRow * kRows) {
  const u32 lane = thread() % kRow, own = thread() / kRow;
  for (i64 first = (i64)block() * kRows; first < a.rows; first += (i64)blocks() * kRows) {
    const i64 row = first + own;
    const bool there = row < a.rows;
    const i64 base = row / a.inner * a.classes * a.inner + row % a.inner;
    Wide weights = 0;
    if (a.smoothing != 0) {
      if (there) for (i64 c = lane; c < a.classes; c += kRow) weights += weight_of(a.weight, c);
      weights = row_sum<kRow>(weights);
    }
    if (!there) continue;
    const i64 t = (i64)load(a.target, row);
    const Wide top = load(a.parts, 2 * row), sum = load(a.parts, 2 * row + 1);
    const bool ignored = t == a.ignore, wrong = !ignored && (t < 0 || t >= a.classes);
    if (wrong && lane == 0) fail_with(a.failure, a.mark);
    if (ignored || wrong) {
      const bool finite = top - top == 0 && sum - sum == 0;
      for (i64 c = lane; c < a.classes; c += kRow) store(a.dx, base + c * a.inner, as<Number>(finite ? Wide(0) : top - top + sum - sum));
      continue;
    }
    const double given = (double)as<Wide>(load(a.dloss, a.each ? row : 0));
    const Wide g = (Wide)(a.mean ? given / load(a.total, 0) : given);
    const Wide own_weight = g * (Wide)(1 - a.smoothing) * weight_of(a.weight, t);
    const Wide every = g * (Wide)a.smoothing / (Wide)a.classes;
    const Wide factor = (every == 0 ? own_weight : own_weight + every * weights) / sum;
    for (i64 c = lane; c < a.classes; c += kRow) {
      const i64 at = base + c * a.inner;
      Wide d = op::exp(as<Wide>(load(a.x, at)) - top) * factor;
      if (c == t) d -= own_weight;
      if (every != 0) d -= every * weight_of(a.weight, c);
      store(a.dx, at, as<Number>(d));
    }
  }
}
)";

std::string failure(const Request& r, const Settings& s) {
  return format("[{}] a target is out of range, expected 0 to {} or ignore_index {}",
                r.node().qualified(), s.classes - 1, s.ignore);
}

std::unique_ptr<Kernel> cross_entropy(const Request& r) {
  const Settings s = settings_of(r, 0, 1, 2);
  const bool each = s.reduction == "none", mean = s.reduction == "mean";
  const bool parts = r.wants(1);
  Gpu& gpu = gpu_of(r);
  const auto code = Code::of(s.types + kCommon + kLoss, gpu.arch());
  const Launch run(code, gpu, "run"), total(code, gpu, "total"), finish(code, gpu, "finish");
  const Grid grid = s.grid(gpu), one{1, kFinishThreads};
  return make_late_kernel(
      "CrossEntropy",
      [=](const Args& args) {
        auto* first = static_cast<double*>(args.scratch);
        const Reach divisor = reach(first, 1, sizeof(double));
        const Reach losses = reach(first + 1, s.rows, s.wide), weight = s.weights(args, 2);
        const Reach loss = reach(args.out[0], each ? s.rows : 1, s.number);
        if (s.rows > 0)
          run(grid,
              words(s.logits(args.in[0]), s.targets(args.in[1]), weight, loss,
                    s.parts(parts ? args.out[1] : nullptr), losses, failure_of(args),
                    int64_t{args.mark}, s.rows, s.classes, s.inner, s.ignore, s.smoothing,
                    int64_t{each}),
              args.stream);
        if (each) return;
        if (mean)
          total(one, words(s.targets(args.in[1]), weight, divisor, s.rows, s.classes, s.ignore),
                args.stream);
        finish(one, words(losses, divisor, loss, s.rows, int64_t{mean}), args.stream);
      },
      {failure(r, s), static_cast<size_t>(s.rows + 1) * sizeof(double)});
}

std::unique_ptr<Kernel> cross_entropy_grad(const Request& r) {
  const Settings s = settings_of(r, 1, 2, 4);
  const bool each = s.reduction == "none", mean = s.reduction == "mean";
  Gpu& gpu = gpu_of(r);
  const auto code = Code::of(s.types + kCommon + kGradient, gpu.arch());
  const Launch run(code, gpu, "run"), total(code, gpu, "total");
  const Grid grid = s.grid(gpu), one{1, kFinishThreads};
  return make_late_kernel(
      "CrossEntropyGrad",
      [=](const Args& args) {
        if (s.rows == 0) return;
        const Reach weight = s.weights(args, 4), divisor = reach(args.scratch, 1, sizeof(double));
        if (mean)
          total(one, words(s.targets(args.in[2]), weight, divisor, s.rows, s.classes, s.ignore),
                args.stream);
        run(grid,
            words(reach(args.in[0], each ? s.rows : 1, s.number), s.logits(args.in[1]),
                  s.targets(args.in[2]), s.parts(args.in[3]), weight, s.logits(args.out[0]),
                  divisor, failure_of(args), int64_t{args.mark}, s.rows, s.classes, s.inner,
                  s.ignore, s.smoothing, int64_t{each}, int64_t{mean}),
            args.stream);
      },
      {failure(r, s), sizeof(double), 1});
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

const Family<KernelTable> kLossKernels("cuda", "loss", register_loss);

}  // namespace ort::cuda
