// Pooling over regions of interest. The samples of a bin are a few weighted rows times a few
// weighted columns, so that a mean is one pass along each axis. Of gradients each thread has
// channels of its own.
#include <algorithm>
#include <limits>
#include <map>

#include "csrc/core/parallel.h"
#include "providers/cpu/images/roi_maxima.h"
#include "providers/cpu/provider.h"

namespace ort::cpu {
namespace {

// X's sizes, and where its regions are said.
struct Map {
  int64_t images, channels, height, width, regions;
  std::string place;

  Map(const Request& r, const Sizes& x, size_t rois)
      : images(x[0]),
        channels(x[1]),
        height(x[2]),
        width(x[3]),
        regions(r.sizes(rois)[0]),
        place(r.node().describe()) {}
  int64_t plane() const { return height * width; }
  int64_t image(std::string_view op, int64_t region, double image) const {
    if (!(image >= 0 && image < static_cast<double>(images)))
      fail("[{}] region {} is of image {}, which is not in 0 to {}; {}", op, region, image,
           images - 1, place);
    return static_cast<int64_t>(image);
  }
};

template <class T>
RoiBox box_of(const T* at) {
  return {static_cast<double>(at[0]), static_cast<double>(at[1]), static_cast<double>(at[2]),
          static_cast<double>(at[3])};
}

// The places of an axis that a bin reads, by what each counts. Others are not read: 0 times an
// infinity would be NaN.
template <class T>
struct Weights {
  std::vector<int64_t> at{};
  std::vector<T> by{};
};

template <class T>
std::vector<Weights<T>> weights_of(const RoiAxis& axis, double divisor) {
  std::vector<Weights<T>> all;
  for (const auto& samples : axis.bins) {
    std::map<int64_t, double> sums;
    for (const RoiSample& s : samples) sums[s.low] += s.by_low, sums[s.high] += s.by_high;
    Weights<T>& bin = all.emplace_back();
    for (const auto& [at, sum] : sums)
      bin.at.push_back(at), bin.by.push_back(static_cast<T>(sum / divisor));
  }
  return all;
}

// A region of RoiAlign, ready for each channel.
template <class T>
struct Region {
  int64_t image;
  bool finite;
  RoiAxis rows, columns;
  std::vector<Weights<T>> by_row, by_column;

  Region(const Map& map, const RoiAlignRule& rule, const T* rois, const int64_t* images, int64_t r)
      : image(map.image("RoiAlign", r, static_cast<double>(images[r]))) {
    const RoiBox box = box_of(rois + r * 4);
    rows = rule.rows(box, map.height);
    columns = rule.columns(box, map.width);
    finite = rows.finite && columns.finite;
    if (rule.max) return;
    by_row = weights_of<T>(rows, std::max(rows.samples, 1.0));
    by_column = weights_of<T>(columns, std::max(columns.samples, 1.0));
  }

  RoiMaxima<T> maxima(const Map& map) const { return {rows, columns, map.width, map.plane()}; }
  void mean(const T* x, int64_t width, T* y) const {
    for (const Weights<T>& row : by_row)
      for (const Weights<T>& column : by_column) {
        T sum{};
        for (size_t h = 0; h < row.by.size(); ++h) {
          const T* line = x + row.at[h] * width;
          T along{};
          for (size_t w = 0; w < column.by.size(); ++w) along += column.by[w] * line[column.at[w]];
          sum += row.by[h] * along;
        }
        *y++ = sum;
      }
  }
  void mean_grad(const T* dy, int64_t width, T* dx) const {
    for (const Weights<T>& row : by_row)
      for (const Weights<T>& column : by_column) {
        const T d = *dy++;
        for (size_t h = 0; h < row.by.size(); ++h) {
          T* line = dx + row.at[h] * width;
          const T by = row.by[h] * d;
          for (size_t w = 0; w < column.by.size(); ++w) line[column.at[w]] += column.by[w] * by;
        }
      }
  }
};

template <class T>
std::unique_ptr<Kernel> roi_align(const Request& r) {
  const Map map(r, r.sizes(0), 1);
  const RoiAlignRule rule(r.attrs());
  const int64_t bins = rule.height * rule.width;
  return make_kernel("RoiAlign", [=](const Args& args) {
    const int64_t work = map.regions * map.channels * bins * 16;
    parallel_for(map.regions, work, [&](int64_t begin, int64_t end, int) {
      for (int64_t roi = begin; roi < end; ++roi) {
        const Region<T> region(map, rule, input<T>(args, 1), input<int64_t>(args, 2), roi);
        const T* x = input<T>(args, 0) + region.image * map.channels * map.plane();
        T* y = output<T>(args) + roi * map.channels * bins;
        if (!region.finite)
          std::fill_n(y, map.channels * bins, std::numeric_limits<T>::quiet_NaN());
        else if (rule.max)
          region.maxima(map).take(x, map.channels, y);
        else
          for (int64_t c = 0; c < map.channels; ++c)
            region.mean(x + c * map.plane(), map.width, y + c * bins);
      }
    });
  });
}

// Calls f(first channel, one after the last) with dx's planes of them cleared, in all images.
template <class T, class F>
void by_channels(const Map& map, T* dx, int64_t work, F f) {
  parallel_for(map.channels, work, [&](int64_t begin, int64_t end, int) {
    for (int64_t image = 0; image < map.images; ++image)
      std::fill_n(dx + (image * map.channels + begin) * map.plane(), (end - begin) * map.plane(),
                  T{});
    f(begin, end);
  });
}

template <class T>
std::unique_ptr<Kernel> roi_align_grad(const Request& r) {
  const Map map(r, r.out().sizes, 1);
  const RoiAlignRule rule(r.attrs());
  // Beside float32 a place of a map is an int32.
  if (rule.max && sizeof(T) == 4 && map.plane() > INT32_MAX) return nullptr;
  const int64_t bins = rule.height * rule.width;
  return make_kernel("RoiAlignGrad", [=](const Args& args) {
    T* all = output<T>(args);
    by_channels(map, all, map.regions * map.channels * bins * 16, [&](int64_t begin, int64_t end) {
      for (int64_t roi = 0; roi < map.regions; ++roi) {
        const Region<T> region(map, rule, input<T>(args, 1), input<int64_t>(args, 2), roi);
        if (!region.finite) continue;
        const int64_t plane = (region.image * map.channels + begin) * map.plane();
        const T* dy = input<T>(args, 0) + (roi * map.channels + begin) * bins;
        if (rule.max)
          region.maxima(map).scatter(input<T>(args, 3) + plane, dy, end - begin, all + plane);
        else
          for (int64_t c = 0; c < end - begin; ++c)
            region.mean_grad(dy + c * bins, map.width, all + plane + c * map.plane());
      }
    });
  });
}

// A region of MaxRoiPool.
struct Window {
  int64_t image;
  RoiBins rows, columns;
  bool finite;

  template <class T>
  Window(const Map& map, const std::vector<int64_t>& size, double scale, const T* rois, int64_t r)
      : image(map.image("MaxRoiPool", r, static_cast<double>(rois[r * 5]))) {
    const RoiBox box = box_of(rois + r * 5 + 1);
    rows = roi_bins(box.top, box.bottom, scale, map.height, size[0]);
    columns = roi_bins(box.left, box.right, scale, map.width, size[1]);
    finite = rows.finite && columns.finite;
  }
  // f(place or -1) of each bin's largest element.
  template <class T, class F>
  void maxima(const T* x, int64_t width, F f) const {
    for (size_t h = 0; h < rows.begin.size(); ++h)
      for (size_t w = 0; w < columns.begin.size(); ++w) {
        int64_t best = -1;
        for (int64_t row = rows.begin[h]; row < rows.end[h]; ++row)
          for (int64_t at = row * width + columns.begin[w]; at < row * width + columns.end[w]; ++at)
            if (best < 0 || x[at] > x[best] || (x[at] != x[at] && x[best] == x[best])) best = at;
        f(best);
      }
  }
};

template <class T>
std::unique_ptr<Kernel> max_roi_pool(const Request& r) {
  const Map map(r, r.sizes(0), 1);
  const std::vector<int64_t> size = r.attrs().ints("pooled_shape");
  const double scale = r.attrs().f("spatial_scale");
  const int64_t bins = size[0] * size[1];
  return make_kernel("MaxRoiPool", [=](const Args& args) {
    const int64_t work = map.regions * map.channels * map.plane() / 4;
    parallel_for(map.regions, work, [&](int64_t begin, int64_t end, int) {
      for (int64_t roi = begin; roi < end; ++roi) {
        const Window window(map, size, scale, input<T>(args, 1), roi);
        for (int64_t c = 0; c < map.channels; ++c) {
          const T* x = input<T>(args, 0) + (window.image * map.channels + c) * map.plane();
          T* y = output<T>(args) + (roi * map.channels + c) * bins;
          if (!window.finite)
            std::fill_n(y, bins, std::numeric_limits<T>::quiet_NaN());
          else
            window.maxima(x, map.width, [&](int64_t at) { *y++ = at < 0 ? T{} : x[at]; });
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> max_roi_pool_grad(const Request& r) {
  const Map map(r, r.out().sizes, 2);
  const std::vector<int64_t> size = r.attrs().ints("pooled_shape");
  const double scale = r.attrs().f("spatial_scale");
  const int64_t bins = size[0] * size[1];
  return make_kernel("MaxRoiPoolGrad", [=](const Args& args) {
    T* all = output<T>(args);
    const int64_t work = map.regions * map.channels * map.plane() / 4;
    by_channels(map, all, work, [&](int64_t begin, int64_t end) {
      for (int64_t roi = 0; roi < map.regions; ++roi) {
        const Window window(map, size, scale, input<T>(args, 2), roi);
        for (int64_t c = begin; c < end && window.finite; ++c) {
          const int64_t plane = (window.image * map.channels + c) * map.plane();
          const T* dy = input<T>(args, 0) + (roi * map.channels + c) * bins;
          window.maxima(input<T>(args, 1) + plane, map.width, [&](int64_t at) {
            if (at >= 0) all[plane + at] += *dy;
            ++dy;
          });
        }
      }
    });
  });
}

}  // namespace

static void register_roi(KernelTable& table) {
  table.op("RoiAlign")
      .add("regions", kF32, roi_align<float>)
      .add("regions", kF64, roi_align<double>);
  table.op("ort::RoiAlignGrad")
      .add("regions", kF32, roi_align_grad<float>)
      .add("regions", kF64, roi_align_grad<double>);
  table.op("MaxRoiPool")
      .add("regions", kF32, max_roi_pool<float>)
      .add("regions", kF64, max_roi_pool<double>);
  table.op("ort::MaxRoiPoolGrad")
      .add("regions", kF32, max_roi_pool_grad<float>)
      .add("regions", kF64, max_roi_pool_grad<double>);
}

const Family<KernelTable> kRoiKernels("cpu", "roi", register_roi);

}  // namespace ort::cpu
