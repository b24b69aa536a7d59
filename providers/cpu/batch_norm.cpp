// torch's batch norm and its gradient. Threads share channels; a channel is a run of its plane in
// each image, taken in pieces by the vector instructions of tile programs.
#include <algorithm>
#include <cmath>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/tile.h"

namespace ort::cpu {
namespace {

constexpr int64_t kPiece = 1024;

struct Layout {
  int64_t images, channels, plane;
  int64_t count() const { return images * plane; }
  int64_t total() const { return count() * channels; }
  // Calls f(offset, length) for the pieces of a channel.
  template <class F>
  void pieces(int64_t channel, F f) const {
    for (int64_t n = 0; n < images; ++n)
      for (int64_t i = 0; i < plane; i += kPiece)
        f((n * channels + channel) * plane + i, std::min(kPiece, plane - i));
  }
};

Layout layout_of(const Sizes& x) {
  Layout l{x[0], x[1], 1};
  for (size_t i = 2; i < x.size(); ++i) l.plane *= x[i];
  return l;
}

struct Steps {
  TileFunction sum = tile_function(TileOp::row_sum, 0);
  TileFunction dot = tile_function(TileOp::row_dot, 0);
  TileFunction minus = tile_function(TileOp::sub, 2);       // a row less a number
  TileFunction affine = tile_function(TileOp::mul_add, 6);  // a row times a number plus a number
  TileFunction scaled = tile_function(TileOp::mul_add, 2);  // a row times a number plus a row

  static TileArgs args(float* dst, const float* a, const float* b, const float* c, int64_t n) {
    TileArgs t{};
    t.dst = dst;
    t.a = a;
    t.b = b;
    t.c = c;
    t.count = n;
    t.p = 1.0f;
    return t;
  }
  double total(const float* x, int64_t n) const {
    float result;
    sum(args(&result, x, nullptr, nullptr, n));
    return result;
  }
  double product(const float* x, const float* y, int64_t n) const {
    float result;
    dot(args(&result, x, y, nullptr, n));
    return result;
  }
};

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of(const Layout& l, const Steps& steps, const float* x, int64_t channel) {
  Moments m;
  l.pieces(channel, [&](int64_t at, int64_t n) { m.mean += steps.total(x + at, n); });
  const double count = static_cast<double>(l.count());
  const float mean = static_cast<float>(m.mean / count);
  double rest = 0;  // what sums in float32 lost of the mean
  float centred[kPiece];
  l.pieces(channel, [&](int64_t at, int64_t n) {
    steps.minus(Steps::args(centred, x + at, &mean, nullptr, n));
    rest += steps.total(centred, n);
    m.variance += steps.product(centred, centred, n);
  });
  rest /= count;
  m.mean = mean + rest;
  m.variance = std::max(m.variance / count - rest * rest, 0.0);
  return m;
}

void normalise(const Layout& l, const Steps& steps, const float* x, float* y, int64_t channel,
               double mean, double inv_std, float scale, float bias) {
  const float factor = static_cast<float>(scale * inv_std);
  const float shift = static_cast<float>(bias - mean * scale * inv_std);
  l.pieces(channel, [&](int64_t at, int64_t n) {
    steps.affine(Steps::args(y + at, x + at, &factor, &shift, n));
  });
}

std::unique_ptr<Kernel> batch_norm(const Request& r) {
  const Layout l = layout_of(r.sizes(0));
  const double epsilon = r.attrs().f("epsilon"), momentum = r.attrs().f("momentum");
  const bool training = r.attrs().i("training", 1) != 0;
  const bool wants[5] = {r.wants(0), r.wants(1), r.wants(2), r.wants(3), r.wants(4)};
  const bool new_mean = wants[1], new_var = wants[2], saved_mean = wants[3], saved_inv = wants[4];
  const Steps steps;
  return make_kernel("BatchNorm", [=](const Args& args) {
    const float* x = input<float>(args, 0);
    const auto at = [&](size_t i, int64_t c) { return input<float>(args, i)[c]; };
    parallel_for(l.channels, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; ++c) {
        Moments m{at(3, c), at(4, c)};
        double running_mean = m.mean, running_var = m.variance;
        if (training && l.count() > 0) {  // of nothing: torch keeps the running statistics
          m = moments_of(l, steps, x, c);
          const double n = static_cast<double>(l.count());
          running_mean += momentum * (m.mean - running_mean);
          running_var += momentum * (m.variance * n / (n - 1) - running_var);
        }
        const double inv_std = 1.0 / std::sqrt(m.variance + epsilon);
        normalise(l, steps, x, output<float>(args), c, m.mean, inv_std, at(1, c), at(2, c));
        if (new_mean) output<float>(args, 1)[c] = static_cast<float>(running_mean);
        if (new_var) output<float>(args, 2)[c] = static_cast<float>(running_var);
        if (saved_mean) output<float>(args, 3)[c] = static_cast<float>(m.mean);
        if (saved_inv) output<float>(args, 4)[c] = static_cast<float>(inv_std);
      }
    });
  });
}

// dx = scale / std (dy - (sum dy + n sum(dy n)) / count) with n the normalised x.
std::unique_ptr<Kernel> batch_norm_grad(const Request& r) {
  const Layout l = layout_of(r.sizes(0));
  const bool training = r.attrs().i("training", 1) != 0;
  const bool wants_x = r.wants(0), wants_scale = r.wants(1), wants_bias = r.wants(2);
  const Steps steps;
  return make_kernel("BatchNormGrad", [=](const Args& args) {
    const float *dy = input<float>(args, 0), *x = input<float>(args, 1);
    parallel_for(l.channels, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t c = begin; c < end; ++c) {
        const float scale = input<float>(args, 2)[c], mean = input<float>(args, 3)[c];
        const float inv_std = input<float>(args, 4)[c];
        double sum = 0, dot = 0;
        float centred[kPiece];
        l.pieces(c, [&](int64_t at, int64_t n) {
          steps.minus(Steps::args(centred, x + at, &mean, nullptr, n));
          sum += steps.total(dy + at, n);
          dot += steps.product(dy + at, centred, n);
        });
        if (wants_scale) output<float>(args, 1)[c] = static_cast<float>(dot * inv_std);
        if (wants_bias) output<float>(args, 2)[c] = static_cast<float>(sum);
        if (!wants_x) continue;
        const float factor = scale * inv_std;
        const double n = static_cast<double>(l.count());
        const double slope = training ? -factor * dot * inv_std * inv_std / n : 0.0;
        const float on_x = static_cast<float>(slope);
        const float shift = static_cast<float>(training ? -factor * sum / n : 0.0);
        l.pieces(c, [&](int64_t at, int64_t count) {
          // not x itself: beside a mean that is large against the deviation it would cancel
          steps.minus(Steps::args(centred, x + at, &mean, nullptr, count));
          steps.affine(Steps::args(centred, centred, &on_x, &shift, count));
          steps.scaled(Steps::args(output<float>(args) + at, dy + at, &factor, centred, count));
        });
      }
    });
  });
}

}  // namespace

void register_batch_norm(KernelTable& table) {
  table.op("ort::BatchNorm").add("channels", kF32, batch_norm);
  table.op("ort::BatchNormGrad").add("channels", kF32, batch_norm_grad);
}

}  // namespace ort::cpu
