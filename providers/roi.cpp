// The arithmetic of regions of interest.
#include "providers/roi.h"

#include <algorithm>
#include <cmath>

namespace ort {
namespace {

// A sample beside the map by more than one reads nothing; nearer ones read its edge.
void put(std::vector<RoiSample>& samples, double at, int64_t size) {
  if (!(at >= -1) || at > static_cast<double>(size) || size == 0) return;
  at = std::max(at, 0.0);
  const auto low = static_cast<int64_t>(at);
  if (low >= size - 1)
    samples.push_back({size - 1, size - 1, 1, 0});
  else
    samples.push_back(
        {low, low + 1, static_cast<double>(low + 1) - at, at - static_cast<double>(low)});
}

}  // namespace

RoiAlignRule::RoiAlignRule(const Attrs& attrs)
    : half_pixel(attrs.s("coordinate_transformation_mode") == "half_pixel"),
      max(attrs.s("mode") == "max"),
      height(attrs.i("output_height")),
      width(attrs.i("output_width")),
      samples(attrs.i("sampling_ratio")),
      scale(attrs.f("spatial_scale")) {}

RoiAxis RoiAlignRule::axis(double start, double end, int64_t size, int64_t bins) const {
  RoiAxis axis{std::vector<std::vector<RoiSample>>(static_cast<size_t>(bins)), 0, true};
  start = start * scale - (half_pixel ? 0.5 : 0);
  double extent = end * scale - (half_pixel ? 0.5 : 0) - start;
  if (!half_pixel) extent = std::max(extent, 1.0);
  axis.finite = std::isfinite(start) && std::isfinite(extent);
  if (!axis.finite) return axis;
  const double bin = extent / static_cast<double>(bins);
  axis.samples = samples > 0 ? static_cast<double>(samples) : std::max(std::ceil(bin), 0.0);
  if (axis.samples == 0) return axis;
  const double step = bin / axis.samples;
  for (size_t b = 0; b < axis.bins.size(); ++b) {
    const double from = start + static_cast<double>(b) * bin;
    double first = 0, count = axis.samples;
    if (samples == 0) {  // steps of half an element or more: of a huge region few are on the map
      first = std::max(first, std::floor((-1 - from) / step) - 1);
      count = std::min(count - first, std::ceil((static_cast<double>(size) + 1) / step) + 4);
    }
    for (double k = 0; k < count; ++k) put(axis.bins[b], from + (first + k + 0.5) * step, size);
  }
  return axis;
}

RoiBins roi_bins(double start, double end, double scale, int64_t size, int64_t bins) {
  RoiBins found{{}, {}, true};
  start = std::round(start * scale);
  end = std::round(end * scale);
  found.finite = std::isfinite(start) && std::isfinite(end);
  if (!found.finite) return found;
  const double bin = std::max(end - start + 1, 1.0) / static_cast<double>(bins);
  const auto clipped = [&](double at) {
    return static_cast<int64_t>(std::clamp(at + start, 0.0, static_cast<double>(size)));
  };
  for (int64_t b = 0; b < bins; ++b) {
    found.begin.push_back(clipped(std::floor(static_cast<double>(b) * bin)));
    found.end.push_back(clipped(std::ceil(static_cast<double>(b + 1) * bin)));
  }
  return found;
}

}  // namespace ort
