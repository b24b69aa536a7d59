// As batch_norm.cpp, with the channels of a block side by side. Threads share blocks. A piece is
// many positions of a block, so a channel's numbers are repeated over it and the vector
// instructions run along it; the sum of each channel is what is left when a piece has been folded
// onto one position.
#include <array>

#include "csrc/core/parallel.h"
#include "providers/cpu/batch_norm.h"
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

std::vector<Moments> moments_of(const Blocks& l, const Steps& steps, const Runs<float>& runs,
                                const void* x, int64_t block) {
  Piece piece, centred;
  Sums sum(l, steps), rest_sum(l, steps), squares(l, steps);
  l.pieces(block, [&](int64_t at, int64_t n) { sum.add(runs.read(x, at, n, piece.data()), n); });
  const double count = static_cast<double>(l.count());
  Lanes means = sum.total();
  for (double& mean : means) mean = static_cast<float>(mean / count);
  const Piece mean = repeated(l, means);
  l.pieces(block, [&](int64_t at, int64_t n) {
    steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
    rest_sum.add(centred.data(), n);
    squares.add(centred.data(), centred.data(), n);
  });
  const Lanes rests = rest_sum.total(), variances = squares.total();
  std::vector<Moments> moments(index(l.lanes));
  for (size_t c = 0; c < moments.size(); ++c) {
    const double rest = rests[c] / count;  // what sums in float32 lost of the mean
    moments[c] = {means[c] + rest, std::max(variances[c] / count - rest * rest, 0.0)};
  }
  return moments;
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

void normalise(const Blocks& l, const Steps& steps, const Runs<float>& runs, const Args& args,
               int64_t block, const Lanes& factors, const Lanes& shifts) {
  const Piece factor = repeated(l, factors), shift = repeated(l, shifts);
  Piece piece;
  l.pieces(block, [&](int64_t at, int64_t n) {
    float* made = runs.room(args.out[0], at, piece.data());
    steps.mul_add(made, runs.read(args.in[0], at, n, piece.data()), factor.data(), shift.data(), n);
    runs.write(made, args.out[0], at, n);
  });
}

void gradient(const Blocks& l, const Steps& steps, const Runs<float>& runs,
              const ChannelNormGrad<float>& norm, const Args& args, int64_t block) {
  const void *dy = args.in[0], *x = args.in[1];
  Lanes means{}, factors{}, slopes{}, shifts{};
  for (int64_t lane = 0; lane < l.lanes; ++lane)
    means[index(lane)] = norm.mean(args, block * l.lanes + lane);
  const Piece mean = repeated(l, means);
  Piece centred, piece;
  Sums sum(l, steps), dot(l, steps);
  l.pieces(block, [&](int64_t at, int64_t n) {
    steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
    const float* slope = runs.read(dy, at, n, piece.data());
    dot.add(slope, centred.data(), n);
    sum.add(slope, n);
  });
  const Lanes sums = sum.total(), dots = dot.total();
  for (int64_t lane = 0; lane < l.lanes; ++lane) {
    const size_t k = index(lane);
    const auto slope = norm.of(args, block * l.lanes + lane, sums[k], dots[k]);
    factors[k] = slope.factor;
    slopes[k] = slope.on_x;
    shifts[k] = slope.shift;
  }
  if (!norm.wants_x()) return;
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

}  // namespace

std::unique_ptr<Kernel> batch_norm_blocks(const Request& r) {
  const auto found = blocks_of(r.in(0));
  if (!found || !r.wants(0) || !r.out().any_layout) return nullptr;
  const Blocks l = *found;
  const bool training = r.attrs().i("training", 1) != 0;
  const Steps steps;
  const Runs<float> runs(r, 0);
  const ChannelNorm<float> norm(r, l.count());
  const auto run = [=](const Args& args) {
    parallel_for(l.blocks, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        std::vector<Moments> batch;
        if (training) batch = moments_of(l, steps, runs, args.in[0], block);
        Lanes factors{}, shifts{};
        for (int64_t lane = 0; lane < l.lanes; ++lane) {
          const size_t k = index(lane);
          const auto line = norm.of(args, block * l.lanes + lane, training ? &batch[k] : nullptr);
          factors[k] = line.factor;
          shifts[k] = line.shift;
        }
        normalise(l, steps, runs, args, block, factors, shifts);
      }
    });
  };
  return make_kernel("BatchNorm", run, r.in(0).layout, {0}, 0);
}

std::unique_ptr<Kernel> batch_norm_grad_blocks(const Request& r) {
  const auto found = blocks_of(r.in(1));
  if (!found || !r.in(0).any_layout || (r.wants(0) && !r.out().any_layout)) return nullptr;
  const Blocks l = *found;
  const Steps steps;
  const Runs<float> runs(r, 0);
  const ChannelNormGrad<float> norm(r, l.count());
  const auto run = [=](const Args& args) {
    parallel_for(l.blocks, l.total() * 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) gradient(l, steps, runs, norm, args, block);
    });
  };
  return make_kernel("BatchNormGrad", run, r.in(1).layout, {0, 1}, 0);
}

}  // namespace ort::cpu
