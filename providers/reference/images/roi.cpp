// Pooling over regions of interest, sample by sample, and its gradients.
#include "providers/roi.h"

#include <limits>

#include "providers/reference/reference.h"

namespace ort::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RoiBox box_of(const In<double>& rois, int64_t at) {
  return {rois[at], rois[at + 1], rois[at + 2], rois[at + 3]};
}

int64_t image_of(const KernelCall& c, int64_t roi, double image, int64_t images) {
  c.require(image >= 0 && image < static_cast<double>(images),
            "region {} is of image {}, which is not in 0 to {}", roi, image, images - 1);
  return static_cast<int64_t>(image);
}

struct Corner {
  int64_t at;
  double weight;
};

void corners_of(const RoiSample& y, const RoiSample& x, int64_t width, Corner* corners) {
  corners[0] = {y.low * width + x.low, y.by_low * x.by_low};
  corners[1] = {y.low * width + x.high, y.by_low * x.by_high};
  corners[2] = {y.high * width + x.low, y.by_high * x.by_low};
  corners[3] = {y.high * width + x.high, y.by_high * x.by_high};
}

// f(offset of X's plane, index of Y, rows, columns of the bin, samples of it) for each bin; f is
// told by null rows that nobody knows what it is.
template <class F>
void each_bin(const KernelCall& c, const Sizes& x, size_t rois_at, size_t indices, F f) {
  const RoiAlignRule rule(c.attrs());
  const In<double> rois = c.in<double>(rois_at);
  const In<int64_t> images = c.in<int64_t>(indices);
  int64_t to = 0;
  for (int64_t r = 0; r < c.sizes(rois_at)[0]; ++r) {
    const RoiBox box = box_of(rois, r * 4);
    const int64_t image = image_of(c, r, static_cast<double>(images[r]), x[0]);
    const RoiAxis rows = rule.rows(box, x[2]), columns = rule.columns(box, x[3]);
    const double count = std::max(rows.samples * columns.samples, 1.0);
    for (int64_t ch = 0; ch < x[1]; ++ch)
      for (const auto& in_rows : rows.bins)
        for (const auto& in_columns : columns.bins)
          f((image * x[1] + ch) * x[2] * x[3], to++,
            rows.finite && columns.finite ? &in_rows : nullptr, in_columns, count);
  }
}

using Samples = std::vector<RoiSample>;

// The largest of the weighted corners of a bin's samples; -1 where there are none.
Corner largest(const In<double>& x, int64_t plane, int64_t width, const Samples& rows,
               const Samples& columns) {
  Corner best{-1, 0}, corners[4];
  double value = 0;
  for (const RoiSample& row : rows)
    for (const RoiSample& column : columns) {
      corners_of(row, column, width, corners);
      for (const Corner& corner : corners) {
        const double here = corner.weight * x[plane + corner.at];
        if (best.at < 0 || here > value || (is_nan(here) && !is_nan(value)))
          best = corner, value = here;
      }
    }
  return best;
}

void roi_align(const KernelCall& c) {
  const bool max = RoiAlignRule(c.attrs()).max;
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  const int64_t width = c.sizes()[3];
  each_bin(c, c.sizes(), 1, 2,
           [&](int64_t plane, int64_t to, const Samples* rows, const Samples& columns, double n) {
             if (!rows) return y.set(to, kNan);
             if (max) {
               const Corner best = largest(x, plane, width, *rows, columns);
               return y.set(to, best.at < 0 ? 0.0 : best.weight * x[plane + best.at]);
             }
             double sum = 0;
             Corner corners[4];
             for (const RoiSample& row : *rows)
               for (const RoiSample& column : columns) {
                 corners_of(row, column, width, corners);
                 for (const Corner& corner : corners) sum += corner.weight * x[plane + corner.at];
               }
             y.set(to, sum / n);
           });
}

void roi_align_grad(const KernelCall& c) {
  const Sizes& sizes = c.out_sizes();
  const In<double> dy = c.in<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(sizes)), 0.0);
  each_bin(c, sizes, 1, 2,
           [&](int64_t plane, int64_t to, const Samples* rows, const Samples& columns, double n) {
             if (!rows) return;
             if (c.has(3)) {
               const Corner best = largest(c.in<double>(3), plane, sizes[3], *rows, columns);
               if (best.at >= 0) dx[static_cast<size_t>(plane + best.at)] += best.weight * dy[to];
               return;
             }
             Corner corners[4];
             for (const RoiSample& row : *rows)
               for (const RoiSample& column : columns) {
                 corners_of(row, column, sizes[3], corners);
                 for (const Corner& corner : corners)
                   dx[static_cast<size_t>(plane + corner.at)] += corner.weight * dy[to] / n;
               }
           });
  c.write(0, dx);
}

// f(index of Y, place of its largest element in X, -1 of an empty bin and -2 where nobody knows).
template <class F>
void each_maximum(const KernelCall& c, size_t x_at, size_t rois_at, F f) {
  const Sizes& s = c.sizes(x_at);
  const In<double> x = c.in<double>(x_at), rois = c.in<double>(rois_at);
  const auto& size = c.attrs().ints("pooled_shape");
  const double scale = c.attrs().f("spatial_scale");
  int64_t to = 0;
  for (int64_t r = 0; r < c.sizes(rois_at)[0]; ++r) {
    const int64_t image = image_of(c, r, rois[r * 5], s[0]);
    const RoiBox box = box_of(rois, r * 5 + 1);
    const RoiBins rows = roi_bins(box.top, box.bottom, scale, s[2], size[0]),
                  columns = roi_bins(box.left, box.right, scale, s[3], size[1]);
    for (int64_t ch = 0; ch < s[1]; ++ch)
      for (size_t h = 0; h < static_cast<size_t>(size[0]); ++h)
        for (size_t w = 0; w < static_cast<size_t>(size[1]); ++w, ++to) {
          if (!rows.finite || !columns.finite) {
            f(to, -2);
            continue;
          }
          int64_t best = -1;
          for (int64_t row = rows.begin[h]; row < rows.end[h]; ++row)
            for (int64_t column = columns.begin[w]; column < columns.end[w]; ++column) {
              const int64_t at = ((image * s[1] + ch) * s[2] + row) * s[3] + column;
              if (best < 0 || x[at] > x[best] || (is_nan(x[at]) && !is_nan(x[best]))) best = at;
            }
          f(to, best);
        }
  }
}

void max_roi_pool(const KernelCall& c) {
  const In<double> x = c.in<double>(0);
  const Out<double> y = c.out<double>(0);
  each_maximum(c, 0, 1, [&](int64_t to, int64_t at) {
    y.set(to, at == -2 ? kNan : at < 0 ? 0.0 : x[at]);
  });
}

void max_roi_pool_grad(const KernelCall& c) {
  const In<double> dy = c.in<double>(0);
  std::vector<double> dx(static_cast<size_t>(element_count(c.out_sizes())), 0.0);
  each_maximum(c, 1, 2, [&](int64_t from, int64_t at) {
    if (at >= 0) dx[static_cast<size_t>(at)] += dy[from];
  });
  c.write(0, dx);
}

}  // namespace

static void register_roi(KernelTable& table) {
  add(table, "RoiAlign", kNumbers, roi_align);
  add(table, "ort::RoiAlignGrad", kNumbers, roi_align_grad);
  add(table, "MaxRoiPool", kNumbers, max_roi_pool);
  add(table, "ort::MaxRoiPoolGrad", kNumbers, max_roi_pool_grad);
}

const Family<KernelTable> kRoiKernels("reference", "roi", register_roi);

}  // namespace ort::reference
