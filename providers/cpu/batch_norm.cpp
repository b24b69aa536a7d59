// torch's batch norm and its gradient. Threads share channels; a channel is a run of its plane in
// each image, taken in pieces by the vector instructions of tile programs; pieces of halves are
// converted on their way.
#include <algorithm>

#include "csrc/core/parallel.h"
#include "providers/cpu/batch_norm.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {
namespace {

constexpr int64_t kPlanePiece = 1024;

struct Planes {
  int64_t images, channels, plane;
  int64_t count() const { return images * plane; }
  int64_t total() const { return count() * channels; }
  // Calls f(offset, length) for the pieces of a channel.
  template <class F>
  void pieces(int64_t channel, F f) const {
    for (int64_t n = 0; n < images; ++n)
      for (int64_t i = 0; i < plane; i += kPlanePiece)
        f((n * channels + channel) * plane + i, std::min(kPlanePiece, plane - i));
  }
};

Planes layout_of(const Sizes& x) {
  Planes l{x[0], x[1], 1};
  for (size_t i = 2; i < x.size(); ++i) l.plane *= x[i];
  return l;
}

template <class T>
struct PlaneSteps {
  TileStep<T> sum{TileOp::row_sum, 0}, dot{TileOp::row_dot, 0};
  TileStep<T> minus{TileOp::sub, 2};       // a row less a number
  TileStep<T> times{TileOp::mul, 2};       // a row times a number
  TileStep<T> affine{TileOp::mul_add, 6};  // a row times a number plus a number
  TileStep<T> scaled{TileOp::mul_add, 2};  // a row times a number plus a row

  double total(const T* x, int64_t n) const {
    T result;
    sum(&result, x, nullptr, nullptr, n);
    return result;
  }
  double product(const T* x, const T* y, int64_t n) const {
    T result;
    dot(&result, x, y, nullptr, n);
    return result;
  }
};

template <class T>
Moments plane_moments(const Planes& l, const PlaneSteps<T>& steps, const Runs<T>& runs,
                      const void* x, int64_t channel) {
  Moments m;
  T piece[kPlanePiece];
  l.pieces(channel,
           [&](int64_t at, int64_t n) { m.mean += steps.total(runs.read(x, at, n, piece), n); });
  const double count = static_cast<double>(l.count());
  const T mean = static_cast<T>(m.mean / count);
  double rest = 0;  // what sums in float32 lost of the mean
  T centred[kPlanePiece];
  l.pieces(channel, [&](int64_t at, int64_t n) {
    steps.minus(centred, runs.read(x, at, n, piece), &mean, nullptr, n);
    rest += steps.total(centred, n);
    m.variance += steps.product(centred, centred, n);
  });
  rest /= count;
  m.mean = mean + rest;
  m.variance = std::max(m.variance / count - rest * rest, 0.0);
  return m;
}

template <class T>
std::unique_ptr<Kernel> batch_norm_of(const Request& r) {
  const Planes l = layout_of(r.sizes(0));
  // Of nothing: torch keeps the running statistics.
  const bool training = r.attrs().i("training", 1) != 0 && l.count() > 0;
  const PlaneSteps<T> steps;
  const Runs<T> runs(r, 0);
  const ChannelNorm<T> norm(r, l.count());
  return make_kernel("BatchNorm", [=](const Args& args) {
    const void* x = args.in[0];
    parallel_for(l.channels, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      T piece[kPlanePiece];
      for (int64_t c = begin; c < end; ++c) {
        Moments m;
        if (training) m = plane_moments(l, steps, runs, x, c);
        const auto line = norm.of(args, c, training ? &m : nullptr);
        l.pieces(c, [&](int64_t at, int64_t n) {
          T* made = runs.room(args.out[0], at, piece);
          steps.affine(made, runs.read(x, at, n, piece), &line.factor, &line.shift, n);
          runs.write(made, args.out[0], at, n);
        });
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> batch_norm_grad_of(const Request& r) {
  const Planes l = layout_of(r.sizes(0));
  const PlaneSteps<T> steps;
  const Runs<T> runs(r, 0);
  const ChannelNormGrad<T> norm(r, l.count());
  return make_kernel("BatchNormGrad", [=](const Args& args) {
    const void *dy = args.in[0], *x = args.in[1];
    parallel_for(l.channels, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      T centred[kPlanePiece], piece[kPlanePiece];
      for (int64_t c = begin; c < end; ++c) {
        const T mean = norm.mean(args, c);
        double sum = 0, dot = 0;
        l.pieces(c, [&](int64_t at, int64_t n) {
          steps.minus(centred, runs.read(x, at, n, piece), &mean, nullptr, n);
          const T* slopes = runs.read(dy, at, n, piece);
          sum += steps.total(slopes, n);
          dot += steps.product(slopes, centred, n);
        });
        const auto slope = norm.of(args, c, sum, dot);
        if (!norm.wants_x()) continue;
        l.pieces(c, [&](int64_t at, int64_t count) {
          if (norm.reads_x()) {
            // not x itself: beside a mean that is large against the deviation it would cancel
            steps.minus(centred, runs.read(x, at, count, piece), &mean, nullptr, count);
            steps.affine(centred, centred, &slope.on_x, &slope.shift, count);
          }
          T* made = runs.room(args.out[0], at, piece);
          const T* slopes = runs.read(dy, at, count, piece);
          if (norm.reads_x())
            steps.scaled(made, slopes, &slope.factor, centred, count);
          else
            steps.times(made, slopes, &slope.factor, nullptr, count);
          runs.write(made, args.out[0], at, count);
        });
      }
    });
  });
}

std::unique_ptr<Kernel> batch_norm(const Request& r) {
  if (r.in(0).dtype == DType::f64) return batch_norm_of<double>(r);
  auto blocks = batch_norm_blocks(r);
  return blocks ? std::move(blocks) : batch_norm_of<float>(r);
}

std::unique_ptr<Kernel> batch_norm_grad(const Request& r) {
  if (r.in(0).dtype == DType::f64) return batch_norm_grad_of<double>(r);
  auto blocks = batch_norm_grad_blocks(r);
  return blocks ? std::move(blocks) : batch_norm_grad_of<float>(r);
}

// Statistics that are kept for the gradient are float32.
Verdict wide_statistics(const Node& node) {
  const bool gradient = node.is("ort::BatchNormGrad");
  for (size_t i : {3, 4}) {
    const Value kept = gradient ? node.input(i) : i < node.out.size() ? node.output(i) : Value{};
    if (kept && kept.dtype() != DType::f32)
      return Verdict::no(format("statistics are {}, expected float32", kept.dtype()));
  }
  return Verdict::yes();
}

void add_channels(KernelList& list, std::unique_ptr<Kernel> (*make)(const Request&)) {
  list.take_layouts()
      .add("channels", kF32 | kHalves, wide_statistics, make)
      .add("channels", kF64, make);
}

}  // namespace

static void register_batch_norm(KernelTable& table) {
  add_channels(table.op("ort::BatchNorm"), batch_norm);
  add_channels(table.op("ort::BatchNormGrad"), batch_norm_grad);
}

const Family<KernelTable> kBatchNormKernels("cpu", "batch_norm", register_batch_norm);

}  // namespace ort::cpu
