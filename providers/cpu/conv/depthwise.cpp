// Threads share vectors of channels. A sum has few terms before it is added to a double.
#include "providers/cpu/conv/depthwise.h"

#include <algorithm>
#include <utility>

#include "csrc/core/parallel.h"
#include "providers/cpu/conv/depthwise_rows.h"

namespace ort::cpu {
namespace {

constexpr int64_t kRowsOfASum = 16;

// [N, C / block, H, W, block], where all channels may be one block.
struct Depthwise {
  int64_t images, channels, block, lanes;
  int64_t in[2], out[2];  // rows and columns of x and of dy
  Window window;
  Layout x, dy;

  int64_t taps() const { return window.kernel[0] * window.kernel[1]; }
  int64_t vectors() const { return channels / lanes; }
  int64_t work() const { return images * channels * out[0] * out[1] * taps() / 8; }
  // Where a vector of channels begins in an image of so many positions.
  int64_t start(int64_t image, int64_t vector, int64_t positions) const {
    const int64_t channel = vector * lanes;
    return (image * channels / block + channel / block) * positions * block + channel % block;
  }
};

std::optional<Depthwise> depthwise_of(const Request& r, const Window& window) {
  const Sizes &dy = r.sizes(0), &x = r.sizes(1), &w = r.out().sizes;
  const bool each_alone = r.attrs().i("group", 1) == x[1] && x[1] == dy[1] && w[1] == 1;
  if (!each_alone || x.size() != 4 || r.in(0).dtype != DType::f32 || window.kernel[1] > kMostTaps)
    return std::nullopt;
  const bool by_x = r.in(1).comes_blocked() && r.in(1).layout.blocked()->channels_in_row() > 0;
  const Operand &given = r.in(by_x ? 1 : 0), &other = r.in(by_x ? 0 : 1);
  const int64_t block = given.comes_blocked() ? given.layout.blocked()->channels_in_row() : 0;
  if (block == 0 || block % 8 != 0 || !other.any_layout) return std::nullopt;
  const auto same = given.layout.blocked()->of(other.sizes);
  if (!same) return std::nullopt;
  return Depthwise{x[0],
                   x[1],
                   block,
                   block % 16 == 0 ? 16 : 8,
                   {x[2], x[3]},
                   {dy[2], dy[3]},
                   window,
                   by_x ? given.layout : *same,
                   by_x ? *same : given.layout};
}

class Accumulator {
 public:
  Accumulator(const Depthwise& p, const Args& args, int64_t begin, int64_t end)
      : p_(p),
        dy_(input<float>(args, 0)),
        x_(input<float>(args, 1)),
        begin_(begin),
        sums_(static_cast<size_t>((end - begin) * p.taps() * p.lanes)),
        totals_(sums_.size()) {}

  // Row `o` of dy.
  void add(int64_t image, int64_t vector, int64_t o) {
    const Window& w = p_.window;
    const DepthwiseRow row{p_.lanes,       p_.block,    w.kernel[1], w.strides[1],
                           w.dilations[1], w.before[1], p_.in[1],    p_.out[1]};
    const float* dy = dy_ + p_.start(image, vector, p_.out[0] * p_.out[1]);
    const float* x = x_ + p_.start(image, vector, p_.in[0] * p_.in[1]);
    float* sums = sums_.data() + (vector - begin_) * p_.taps() * p_.lanes;
    for (int64_t k = 0; k < w.kernel[0]; ++k, sums += w.kernel[1] * p_.lanes) {
      const int64_t from = o * w.strides[0] + k * w.dilations[0] - w.before[0];
      if (from >= 0 && from < p_.in[0])
        add_depthwise_row(row, x + from * p_.in[1] * p_.block, dy + o * p_.out[1] * p_.block, sums);
    }
  }
  void settle(int64_t first, int64_t last) {
    const auto each = static_cast<size_t>(p_.taps() * p_.lanes);
    const size_t from = static_cast<size_t>(first - begin_) * each;
    for (size_t i = from; i < from + static_cast<size_t>(last - first) * each; ++i)
      totals_[i] += std::exchange(sums_[i], 0.0f);
  }
  void write(float* dw) const {
    const int64_t taps = p_.taps(), lanes = p_.lanes;
    const auto count = static_cast<int64_t>(totals_.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t vector = begin_ + i / (taps * lanes), tap = i / lanes % taps;
      dw[(vector * lanes + i % lanes) * taps + tap] = static_cast<float>(totals_[i]);
    }
  }

 private:
  const Depthwise& p_;
  const float *dy_, *x_;
  int64_t begin_;
  std::vector<float> sums_;  // [vector, tap, lane]
  std::vector<double> totals_;
};

}  // namespace

std::unique_ptr<Kernel> depthwise_grad_w(const Request& r, const Window& window) {
  const auto found = depthwise_of(r, window);
  if (!found) return nullptr;
  const Depthwise p = *found;
  const auto run = [p](const Args& args) {
    parallel_for(p.vectors(), p.work(), [&](int64_t begin, int64_t end, int) {
      Accumulator sums(p, args, begin, end);
      // Vectors of one row lie side by side where the channels come last.
      const int64_t together = p.block == p.channels ? end - begin : 1;
      for (int64_t first = begin; first < end; first += together) {
        for (int64_t row = 0; row < p.images * p.out[0]; ++row) {
          for (int64_t v = first; v < first + together; ++v)
            sums.add(row / p.out[0], v, row % p.out[0]);
          if (row % kRowsOfASum == kRowsOfASum - 1) sums.settle(first, first + together);
        }
        sums.settle(first, first + together);
      }
      sums.write(output<float>(args));
    });
  };
  return make_kernel("ConvGradW", run, {p.dy, p.x}, {});
}

}  // namespace ort::cpu
