// GridSample and its gradients over any number of axes, one position after the other.
#include <algorithm>
#include <cmath>

#include "providers/reference/images/saturate.h"
#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

struct Tap {
  int64_t at;  // -1: outside, where there are zeros
  double weight, slope;
};

// How positions along one axis are read.
class Axis {
 public:
  Axis(const Attrs& attrs, int64_t size, int64_t axes)
      : mode_(attrs.s("mode")),
        padding_(attrs.s("padding_mode")),
        align_(attrs.i("align_corners") != 0),
        in_elements_(attrs.i("in_elements", 0) != 0),
        volume_(axes == 3),
        size_(static_cast<double>(size)) {}

  // d position / d grid, before padding.
  double scale() const { return in_elements_ ? 1 : (align_ ? size_ - 1 : size_) / 2; }
  double position(double grid) const {
    if (in_elements_) return grid;
    return align_ ? (grid + 1) / 2 * (size_ - 1) : ((grid + 1) * size_ - 1) / 2;
  }

  // Those of a position; slopes are by the grid's number.
  std::vector<Tap> taps(double grid) const {
    double at = position(grid), turn = scale();
    if (mode_ == "cubic") return cubic(at, turn);
    at = padded(at, &turn);
    if (mode_ == "nearest") return {tap(std::nearbyint(at), 1, 0)};
    const double low = std::floor(at), part = at - low;
    return {tap(low, 1 - part, -turn), tap(low + 1, part, turn)};
  }

 private:
  // Torch reads a volume at NaN as at its last element, and an image as at its first one.
  double clipped(double at, double* turn) const {
    const double last = size_ - 1;
    if (std::isnan(at)) at = volume_ ? last : 0;
    if (at <= 0 || at >= last) *turn = 0;
    return std::clamp(at, 0.0, last);
  }
  double padded(double at, double* turn) const {
    if (padding_ == "zeros") return at;
    if (padding_ == "border") return clipped(at, turn);
    const double low = align_ ? 0 : -0.5, span = align_ ? size_ - 1 : size_;
    if (span == 0) {
      *turn = 0;
      return std::isnan(at) ? clipped(at, turn) : 0;
    }
    if (at < low) *turn = -*turn;
    const double far = std::abs(at - low), flips = std::floor(far / span);
    const double rest = std::fmod(far, span);
    const bool odd = std::fmod(flips, 2) != 0;
    if (odd) *turn = -*turn;
    return clipped(low + (odd ? span - rest : rest), turn);
  }
  Tap tap(double at, double weight, double slope) const {
    if (at >= 0 && at < size_) return {static_cast<int64_t>(at), weight, slope};
    if (volume_) return {-1, 0, 0};  // as torch, whatever the weight
    return {-1, weight, slope};
  }
  std::vector<Tap> cubic(double at, double turn) const {
    constexpr double a = -0.75;
    const double low = std::floor(at), t = at - low;
    std::vector<Tap> taps;
    for (int k = -1; k <= 2; ++k) {
      const double signed_far = t - k, far = std::abs(signed_far);
      const bool near = k == 0 || k == 1;
      const double weight = near ? ((a + 2) * far - (a + 3)) * far * far + 1
                                 : ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
      const double slope =
          near ? (3 * (a + 2) * far - 2 * (a + 3)) * far : (3 * a * far - 10 * a) * far + 8 * a;
      double ignored = 0;
      taps.push_back(
          tap(padded(low + k, &ignored), weight, signed_far < 0 ? -slope * turn : slope * turn));
    }
    return taps;
  }

  std::string mode_, padding_;
  bool align_, in_elements_, volume_;
  double size_;
};

// Calls f(offset in X's plane or -1, weight, slopes by the grid's numbers) for what a position
// reads.
template <class F>
void combine(const std::vector<std::vector<Tap>>& by_axis, const Sizes& strides, F f) {
  const size_t n = by_axis.size();
  std::vector<size_t> choice(n, 0);
  for (;;) {
    int64_t offset = 0;
    double weight = 1;
    std::vector<double> slopes(n, 1);
    for (size_t d = 0; d < n; ++d) {
      const Tap& tap = by_axis[d][choice[d]];
      offset = offset < 0 || tap.at < 0 ? -1 : offset + tap.at * strides[d];
      weight *= tap.weight;
      for (size_t other = 0; other < n; ++other)
        slopes[other] *= other == d ? tap.slope : tap.weight;
    }
    f(offset, weight, slopes);
    size_t d = n;
    while (d-- > 0) {
      if (++choice[d] < by_axis[d].size()) break;
      choice[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

struct Planes {
  Sizes space, strides;
  int64_t images, channels, size, positions, axes;
  std::vector<Axis> rules;

  Planes(const KernelCall& c, const Sizes& x, const Sizes& grid)
      : space(x.begin() + 2, x.end()),
        strides(strides_of(space)),
        images(x[0]),
        channels(x[1]),
        size(element_count(space)),
        positions(element_count(Sizes(grid.begin() + 1, grid.end() - 1))),
        axes(static_cast<int64_t>(space.size())) {
    for (const int64_t extent : space) rules.emplace_back(c.attrs(), extent, axes);
  }

  // f(image, position, offset, weight, slopes) of all that is read.
  template <class F>
  void each(const In<double>& grid, F f) const {
    for (int64_t image = 0; image < images; ++image)
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t at = (image * positions + p) * axes;
        std::vector<std::vector<Tap>> taps;
        for (int64_t d = 0; d < axes; ++d)  // x, the last axis, is named first
          taps.push_back(rules[static_cast<size_t>(d)].taps(grid[at + axes - 1 - d]));
        combine(taps, strides, [&](int64_t offset, double weight, const std::vector<double>& s) {
          f(image, p, offset, weight, s);
        });
      }
  }
};

void sample(const KernelCall& c) {
  const Planes p(c, c.sizes(0), c.sizes(1));
  const In<double> x = c.in<double>(0);
  std::vector<double> y(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  p.each(c.in<double>(1),
         [&](int64_t image, int64_t at, int64_t offset, double weight, const std::vector<double>&) {
           for (int64_t ch = 0; ch < p.channels; ++ch) {
             const int64_t plane = image * p.channels + ch;
             y[static_cast<size_t>(plane * p.positions + at)] +=
                 weight * (offset < 0 ? 0.0 : x[plane * p.size + offset]);
           }
         });
  saturate(y, c.dtype());
  c.write(0, y);
}

// Elements as they are: no number says an int64 whole.
void sample_elements(const KernelCall& c) {
  const Planes p(c, c.sizes(0), c.sizes(1));
  fill_zero(c, 0);
  const Bytes move = bytes(c, 0);
  p.each(c.in<double>(1),
         [&](int64_t image, int64_t at, int64_t offset, double, const std::vector<double>&) {
           for (int64_t ch = 0; ch < p.channels && offset >= 0; ++ch) {
             const int64_t plane = image * p.channels + ch;
             move.copy(plane * p.positions + at, plane * p.size + offset);
           }
         });
}

void sample_grad(const KernelCall& c) {
  const Planes p(c, c.out_sizes(), c.sizes(1));
  const In<double> dy = c.in<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  p.each(c.in<double>(1), [&](int64_t image, int64_t at, int64_t offset, double weight,
                              const std::vector<double>&) {
    for (int64_t ch = 0; ch < p.channels && offset >= 0; ++ch) {
      const int64_t plane = image * p.channels + ch;
      dx[static_cast<size_t>(plane * p.size + offset)] += weight * dy[plane * p.positions + at];
    }
  });
  c.write(0, dx);
}

void positions_grad(const KernelCall& c) {
  const Planes p(c, c.sizes(1), c.sizes(2));
  const In<double> dy = c.in<double>(0), x = c.in<double>(1);
  std::vector<double> d(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  p.each(c.in<double>(2),
         [&](int64_t image, int64_t at, int64_t offset, double, const std::vector<double>& slopes) {
           double sum = 0;
           for (int64_t ch = 0; ch < p.channels && offset >= 0; ++ch) {
             const int64_t plane = image * p.channels + ch;
             sum += dy[plane * p.positions + at] * x[plane * p.size + offset];
           }
           for (int64_t axis = 0; axis < p.axes; ++axis)
             d[static_cast<size_t>((image * p.positions + at) * p.axes + p.axes - 1 - axis)] +=
                 sum * slopes[static_cast<size_t>(axis)];
         });
  c.write(0, d);
}

Verdict can_sample(const Node& node) {
  return require(node.attrs.s("mode") == "nearest", "it computes numbers");
}

}  // namespace

static void register_grid_sample(KernelTable& table) {
  add(table, "GridSample", kNumbers, sample_elements, can_sample);
  add(table, "GridSample", kNumbers, sample);
  add(table, "ort::GridSampleGrad", kNumbers, sample_grad);
  add(table, "ort::GridSamplePositionsGrad", kNumbers, positions_grad);
}

const Family<KernelTable> kGridSampleKernels("reference", "grid_sample", register_grid_sample);

}  // namespace ort::reference
