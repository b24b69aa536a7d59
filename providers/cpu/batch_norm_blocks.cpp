// As batch_norm.cpp, with the channels of a block side by side. Threads share blocks. A piece is
// many positions of a block, so a channel's numbers are repeated over it and the vector
// instructions run along it; the sum of each channel is what is left when a piece has been folded
// onto one position.
#include "csrc/core/parallel.h"
#include "providers/cpu/batch_norm.h"
#include "providers/cpu/channel_blocks.h"

namespace ort::cpu {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// A number for each channel of a block, repeated over a piece.
Piece repeated(const Blocks& l, const Lanes& numbers) {
  Piece piece;
  const int64_t width = l.width();
  for (int64_t c = 0; c < l.lanes; ++c) piece[index(c)] = static_cast<float>(numbers[index(c)]);
  for (int64_t done = l.lanes; done < width; done *= 2)
    std::copy_n(piece.data(), std::min(done, width - done), piece.data() + done);
  return piece;
}

// The means of the first positions of every image.
Lanes first_means(const Blocks& l, const Steps& steps, const Runs<float>& runs, const void* x,
                  int64_t block) {
  Piece piece;
  Sums sum(l, steps);
  const int64_t length = l.plane * l.lanes, n = l.width();
  for (int64_t image = 0; image < l.images; ++image)
    sum.add(runs.read(x, (image * l.blocks + block) * length, n, piece.data()), n);
  Lanes means = sum.total();
  for (double& mean : means)
    mean =
        static_cast<float>(mean * static_cast<double>(l.lanes) / static_cast<double>(n * l.images));
  return means;
}

// In one pass, from sums of what x is above `near`.
std::vector<Moments> moments_near(const Blocks& l, const Steps& steps, const Runs<float>& runs,
                                  const void* x, int64_t block, const Lanes& near) {
  Piece piece, centred;
  Sums rest_sum(l, steps), squares(l, steps);
  const Piece centre = repeated(l, near);
  l.pieces(block, [&](int64_t at, int64_t n) {
    steps.sub(centred.data(), runs.read(x, at, n, piece.data()), centre.data(), nullptr, n);
    rest_sum.add(centred.data(), n);
    squares.add(centred.data(), centred.data(), n);
  });
  const Lanes rests = rest_sum.total(), sums = squares.total();
  const double count = static_cast<double>(l.count());
  std::vector<Moments> moments(index(l.lanes));
  for (size_t c = 0; c < moments.size(); ++c) {
    const double rest = rests[c] / count;
    moments[c] = {near[c] + rest, std::max(sums[c] / count - rest * rest, 0.0)};
  }
  return moments;
}

// Beside a deviation that is small against what the first means miss, both lose digits: once more.
std::vector<Moments> block_moments(const Blocks& l, const Steps& steps, const Runs<float>& runs,
                                   const void* x, int64_t block) {
  Lanes near = first_means(l, steps, runs, x, block);
  std::vector<Moments> moments = moments_near(l, steps, runs, x, block, near);
  bool far = false;
  for (size_t c = 0; c < moments.size(); ++c) {
    const double missed = moments[c].mean - near[c];
    far = far || missed * missed > 4 * moments[c].variance;
    near[c] = static_cast<float>(moments[c].mean);
  }
  return far ? moments_near(l, steps, runs, x, block, near) : moments;
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
    if (norm.reads_x()) {
      // not x itself: beside a mean that is large against the deviation it would cancel
      steps.sub(centred.data(), runs.read(x, at, n, piece.data()), mean.data(), nullptr, n);
      steps.mul_add(centred.data(), centred.data(), on_x.data(), shift.data(), n);
    }
    float* made = runs.room(args.out[0], at, piece.data());
    const float* slope = runs.read(dy, at, n, piece.data());
    if (norm.reads_x())
      steps.mul_add(made, slope, factor.data(), centred.data(), n);
    else
      steps.mul(made, slope, factor.data(), nullptr, n);
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
        if (training) batch = block_moments(l, steps, runs, args.in[0], block);
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
  return make_kernel("BatchNorm", run, {r.in(0).layout}, {r.in(0).layout});
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
  return make_kernel("BatchNormGrad", run, {r.in(1).layout, r.in(1).layout}, {r.in(1).layout});
}

}  // namespace ort::cpu
