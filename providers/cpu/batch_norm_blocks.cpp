// As batch_norm.cpp, with the channels of a block side by side. Threads share blocks. A piece is
// many positions of a block, so a channel's numbers are repeated over it and the vector
// instructions run along it; the sum of each channel is what is left when a piece has been folded
// onto one position.
#include "providers/cpu/batch_norm_blocks.h"

#include <array>
#include <cmath>

#include "csrc/core/parallel.h"
#include "providers/cpu/runs.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {
namespace {

constexpr int64_t kPiece = 1024, kMostLanes = 64;

using Piece = std::array<float, kPiece>;
using Lanes = std::array<double, kMostLanes>;  // a number for each channel of a block

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

struct Blocks {
  int64_t images, blocks, plane, lanes;
  int64_t count() const { return images * plane; }
  int64_t total() const { return count() * blocks * lanes; }
  int64_t width() const { return std::min(kPiece, plane * lanes); }  // of the longest piece
  // Calls f(offset, length) for the pieces of a block.
  template <class F>
  void pieces(int64_t block, F f) const {
    const int64_t length = plane * lanes;
    for (int64_t n = 0; n < images; ++n)
      for (int64_t i = 0; i < length; i += kPiece)
        f((n * blocks + block) * length + i, std::min(kPiece, length - i));
  }
};

struct Steps {
  TileStep<float> add{TileOp::add, 0}, sub{TileOp::sub, 0}, mul{TileOp::mul, 0};
  TileStep<float> mul_add{TileOp::mul_add, 0};
};

// A number for each channel of a block, repeated over a piece.
Piece repeated(const Blocks& l, const Lanes& numbers) {
  Piece piece;
  const int64_t width = l.width();
  for (int64_t c = 0; c < l.lanes; ++c) piece[index(c)] = static_cast<float>(numbers[index(c)]);
  for (int64_t done = l.lanes; done < width; done *= 2)
    std::copy_n(piece.data(), std::min(done, width - done), piece.data() + done);
  return piece;
}

// Sums over the pieces of a block, by channel: a cell adds few numbers before cells are folded.
class Sums {
 public:
  Sums(const Blocks& l, const Steps& steps) : l_(l), steps_(steps) {}
  void add(const float* x, int64_t n) {
    steps_.add(cells_.data(), cells_.data(), x, nullptr, n);
    count();
  }
  void add(const float* x, const float* y, int64_t n) {
    steps_.mul_add(cells_.data(), x, y, cells_.data(), n);
    count();
  }
  Lanes total() {
    fold();
    return total_;
  }

 private:
  void count() {
    if (++pieces_ == kSummedRows) fold();
  }
  void fold() {
    int64_t n = l_.width();
    while (n > l_.lanes) {
      const int64_t half = n / l_.lanes / 2 * l_.lanes;
      steps_.add(cells_.data(), cells_.data(), cells_.data() + n - half, nullptr, half);
      n -= half;
    }
    for (int64_t c = 0; c < l_.lanes; ++c) total_[index(c)] += cells_[index(c)];
    std::fill_n(cells_.data(), l_.width(), 0.0f);
    pieces_ = 0;
  }

  const Blocks& l_;
  const Steps& steps_;
  Piece cells_{};
  int64_t pieces_ = 0;
  Lanes total_{};
};

struct Moments {
  Lanes mean{}, variance{};
};

Moments moments_of(const Blocks& l, const Steps& steps, const Runs<float>& runs, const void* x,
                   int64_t block) {
  Piece piece, centred;
  Sums sum(l, steps), rest_sum(l, steps), squares(l, steps);
  l.pieces(block, [&](int64_t at, int64_t n) { sum.add(runs.read(x, at, n, piece.data()), n); });
  const double count = static_cast<double>(l.count());
  Moments m{sum.total(), {}};
  for (double& mean : m.mean) mean = static_cast<float>(mean / count);
  const Piece mean = repeated(l, m.mean);
  l.pieces(block, [&](int64_t at, int64_t n) {
    steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
    rest_sum.add(centred.data(), n);
    squares.add(centred.data(), centred.data(), n);
  });
  Lanes rest = rest_sum.total();  // what sums in float32 lost of the mean
  m.variance = squares.total();
  for (size_t c = 0; c < rest.size(); ++c) {
    rest[c] /= count;
    m.mean[c] += rest[c];
    m.variance[c] = std::max(m.variance[c] / count - rest[c] * rest[c], 0.0);
  }
  return m;
}

// How x lies where it is blocks of channels that the kernel takes.
std::optional<Blocks> blocks_of(const Operand& x) {
  const BlockedLayout* layout = x.any_layout ? x.layout.blocked() : nullptr;
  const int64_t lanes = layout ? layout->channel_block() : 0;
  if (lanes == 0 || lanes > kMostLanes || element_count(x.sizes) == 0) return std::nullopt;
  Blocks l{x.sizes[0], x.sizes[1] / lanes, 1, lanes};
  for (size_t i = 2; i < x.sizes.size(); ++i) l.plane *= x.sizes[i];
  return l;
}

}  // namespace

std::unique_ptr<Kernel> batch_norm_blocks(const Request& r) {
  const auto found = blocks_of(r.in(0));
  if (!found || !r.wants(0) || !r.out().any_layout) return nullptr;
  const Blocks l = *found;
  const double epsilon = r.attrs().f("epsilon"), momentum = r.attrs().f("momentum");
  const bool training = r.attrs().i("training", 1) != 0;
  const bool new_mean = r.wants(1), new_var = r.wants(2), saved_mean = r.wants(3);
  const bool saved_inv = r.wants(4);
  const Steps steps;
  const Runs<float> runs(r, 0), given(r, 1), saved(DType::undefined);
  const auto run = [=](const Args& args) {
    parallel_for(l.blocks, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        Moments m;
        if (training) m = moments_of(l, steps, runs, args.in[0], block);
        Lanes factors{}, shifts{};
        for (int64_t lane = 0; lane < l.lanes; ++lane) {
          const int64_t c = block * l.lanes + lane;
          const auto at = [&](size_t i) -> double { return given.number(args.in[i], c); };
          const auto k = static_cast<size_t>(lane);
          double mean = at(3), variance = at(4);
          if (training) {
            const double n = static_cast<double>(l.count());
            if (new_mean) given.put(mean + momentum * (m.mean[k] - mean), args.out[1], c);
            const double unbiased = m.variance[k] * n / (n - 1);
            if (new_var) given.put(variance + momentum * (unbiased - variance), args.out[2], c);
            mean = m.mean[k];
            variance = m.variance[k];
          } else {
            if (new_mean) given.put(mean, args.out[1], c);
            if (new_var) given.put(variance, args.out[2], c);
          }
          const double inv_std = 1.0 / std::sqrt(variance + epsilon);
          factors[k] = static_cast<float>(at(1) * inv_std);
          shifts[k] = static_cast<float>(at(2) - mean * at(1) * inv_std);
          if (saved_mean) saved.put(mean, args.out[3], c);
          if (saved_inv) saved.put(inv_std, args.out[4], c);
        }
        const Piece factor = repeated(l, factors), shift = repeated(l, shifts);
        Piece piece;
        l.pieces(block, [&](int64_t at, int64_t n) {
          float* made = runs.room(args.out[0], at, piece.data());
          steps.mul_add(made, runs.read(args.in[0], at, n, piece.data()), factor.data(),
                        shift.data(), n);
          runs.write(made, args.out[0], at, n);
        });
      }
    });
  };
  return make_kernel("BatchNorm", run, r.in(0).layout, {0}, 0);
}

std::unique_ptr<Kernel> batch_norm_grad_blocks(const Request& r) {
  const auto found = blocks_of(r.in(1));
  if (!found || !r.in(0).any_layout || (r.wants(0) && !r.out().any_layout)) return nullptr;
  const Blocks l = *found;
  const bool training = r.attrs().i("training", 1) != 0;
  const bool wants_x = r.wants(0), wants_scale = r.wants(1), wants_bias = r.wants(2);
  const Steps steps;
  const Runs<float> runs(r, 0), given(r, 2), saved(r, 3);
  const auto run = [=](const Args& args) {
    const void *dy = args.in[0], *x = args.in[1];
    parallel_for(l.blocks, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        Lanes means{}, factors{}, slopes{}, shifts{};
        Sums sum(l, steps), dot(l, steps);
        for (int64_t lane = 0; lane < l.lanes; ++lane)
          means[static_cast<size_t>(lane)] = saved.number(args.in[3], block * l.lanes + lane);
        const Piece mean = repeated(l, means);
        Piece centred, piece;
        l.pieces(block, [&](int64_t at, int64_t n) {
          steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
          const float* slope = runs.read(dy, at, n, piece.data());
          dot.add(slope, centred.data(), n);
          sum.add(slope, n);
        });
        const Lanes sums = sum.total(), dots = dot.total();
        const double count = static_cast<double>(l.count());
        for (int64_t lane = 0; lane < l.lanes; ++lane) {
          const int64_t c = block * l.lanes + lane;
          const auto k = static_cast<size_t>(lane);
          const double inv_std = saved.number(args.in[4], c);
          if (wants_scale) given.put(dots[k] * inv_std, args.out[1], c);
          if (wants_bias) given.put(sums[k], args.out[2], c);
          const double factor = static_cast<float>(given.number(args.in[2], c) * inv_std);
          factors[k] = factor;
          slopes[k] = training ? -factor * dots[k] * inv_std * inv_std / count : 0.0;
          shifts[k] = training ? -factor * sums[k] / count : 0.0;
        }
        if (!wants_x) continue;
        const Piece factor = repeated(l, factors), on_x = repeated(l, slopes);
        const Piece shift = repeated(l, shifts);
        l.pieces(block, [&](int64_t at, int64_t n) {
          // not x itself: beside a mean that is large against the deviation it would cancel
          steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
          steps.mul_add(centred.data(), centred.data(), on_x.data(), shift.data(), n);
          float* made = runs.room(args.out[0], at, piece.data());
          steps.mul_add(made, runs.read(dy, at, n, piece.data()), factor.data(), centred.data(), n);
          runs.write(made, args.out[0], at, n);
        });
      }
    });
  };
  return make_kernel("BatchNormGrad", run, r.in(1).layout, {0, 1}, 0);
}

}  // namespace ort::cpu
