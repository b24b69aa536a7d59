// Positions and weights of Resize: ONNX's, computed in double, and torch's own.
#include "providers/resize.h"

#include <algorithm>
#include <cmath>

namespace ort {

int64_t AxisMap::most_taps() const {
  int64_t most = 0;
  for (int64_t o = 0; o < out(); ++o) most = std::max(most, taps(o));
  return most;
}

bool AxisMap::moves() const {
  return outside.empty() &&
         std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 1; }) &&
         static_cast<int64_t>(weights.size()) == out() && (out() == 0 || most_taps() == 1);
}

bool AxisMap::keeps() const {
  if (in != out() || !outside.empty()) return false;
  for (int64_t o = 0; o < out(); ++o)
    for (int64_t k = 0; k < taps(o); ++k) {
      const bool own = first[static_cast<size_t>(o)] + k == o;
      if (weights[static_cast<size_t>(begin[static_cast<size_t>(o)] + k)] != (own ? 1 : 0))
        return false;
    }
  return true;
}

// Positions go one way, so those that read an element lie side by side.
AxisMap AxisMap::transposed() const {
  const auto n = static_cast<size_t>(in);
  std::vector<int64_t> low(n, out()), high(n, 0);
  const auto each = [&](auto f) {
    for (int64_t o = 0; o < out(); ++o)
      for (int64_t k = 0; k < taps(o); ++k)
        f(o, static_cast<size_t>(first[static_cast<size_t>(o)] + k),
          weights[static_cast<size_t>(begin[static_cast<size_t>(o)] + k)]);
  };
  each([&](int64_t o, size_t i, double) {
    low[i] = std::min(low[i], o);
    high[i] = std::max(high[i], o + 1);
  });
  AxisMap map{axis, out(), low, {0}, {}, {}};
  for (size_t i = 0; i < n; ++i) {
    if (low[i] >= high[i]) map.first[i] = 0;
    map.begin.push_back(map.begin[i] + std::max<int64_t>(high[i] - low[i], 0));
  }
  map.weights.assign(static_cast<size_t>(map.begin.back()), 0.0);
  each([&](int64_t o, size_t i, double weight) {
    map.weights[static_cast<size_t>(map.begin[i] + o - low[i])] += weight;
  });
  return map;
}

namespace {

// A map that is written position by position.
class Writer {
 public:
  Writer(size_t axis, int64_t in, int64_t out, bool exclude) : exclude_(exclude) {
    map_.axis = axis;
    map_.in = in;
    map_.first.reserve(static_cast<size_t>(out));
    map_.begin = {0};
  }

  void outside() {
    map_.outside.push_back(map_.out());
    map_.first.push_back(0);
    map_.begin.push_back(map_.begin.back());
  }

  // Of x[from + k] and on: what lies beyond an end is that end, or nothing, and then the others
  // have its share.
  void add(int64_t from, const std::vector<double>& weights) {
    const auto count = static_cast<int64_t>(weights.size());
    const int64_t first = std::clamp<int64_t>(from, 0, map_.in - 1),
                  last = std::clamp<int64_t>(from + count - 1, 0, map_.in - 1);
    const auto start = map_.weights.size();
    map_.weights.resize(start + static_cast<size_t>(last - first + 1), 0.0);
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = from + k;
      if (exclude_ && (at < 0 || at >= map_.in)) continue;
      const auto to = static_cast<size_t>(std::clamp<int64_t>(at, first, last) - first);
      map_.weights[start + to] += weights[static_cast<size_t>(k)];
      sum += weights[static_cast<size_t>(k)];
    }
    if (exclude_ && sum != 0)
      for (size_t i = start; i < map_.weights.size(); ++i) map_.weights[i] /= sum;
    map_.first.push_back(first);
    map_.begin.push_back(static_cast<int64_t>(map_.weights.size()));
  }

  AxisMap take() { return std::move(map_); }

 private:
  bool exclude_;
  AxisMap map_;
};

// Keys' cubic of |distance|.
template <class R>
R cubic(R x, R a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// --- ONNX ---

// `over` / `under`: so much longer is the result. Of sizes it is a fraction, so that positions
// which are whole numbers come out as such.
struct Axis {
  int64_t in, out;
  double over, under;
  double start, end;  // of the roi
  double scale() const { return over / under; }
  // Of the result, which may be no integer where a scale is given.
  double length() const { return static_cast<double>(in) * over / under; }
  // Where a place of the result lies on the axis before it is moved.
  double unscaled(double place) const { return place * under / over; }
};

double position(const std::string& mode, const Axis& a, int64_t o) {
  const auto place = static_cast<double>(o), last = static_cast<double>(a.in - 1);
  if (mode == "asymmetric") return a.unscaled(place);
  if (mode == "tf_half_pixel_for_nn") return a.unscaled(place + 0.5);
  if (mode == "align_corners") return a.length() == 1 ? 0 : place * last / (a.length() - 1);
  if (mode == "tf_crop_and_resize") {
    if (a.out == 1) return 0.5 * (a.start + a.end) * last;
    return a.start * last + place * (a.end - a.start) * last / static_cast<double>(a.out - 1);
  }
  if (mode == "pytorch_half_pixel" && a.out == 1) return 0;
  const double half = a.unscaled(place + 0.5);
  if (mode != "half_pixel_symmetric") return half - 0.5;
  // In the order of ONNX's text: a nearest element hangs on the last bit.
  return static_cast<double>(a.in) / 2 * (1 - static_cast<double>(a.out) / a.length()) + half - 0.5;
}

int64_t nearest(const std::string& mode, double at) {
  const double whole = mode == "floor"               ? std::floor(at)
                       : mode == "ceil"              ? std::ceil(at)
                       : mode == "round_prefer_ceil" ? std::floor(at + 0.5)
                                                     : std::ceil(at - 0.5);
  return static_cast<int64_t>(whole);
}

// The filter as wide as the step of positions, where that is above 1.
std::vector<double> filter(double at, double scale, int64_t radius, double a, int64_t& from) {
  const double narrow = std::min(scale, 1.0);
  const double reach = static_cast<double>(radius) / narrow;
  from = static_cast<int64_t>(std::floor(at - reach)) + 1;
  const auto end = static_cast<int64_t>(std::ceil(at + reach));
  std::vector<double> weights;
  double sum = 0;
  for (int64_t i = from; i < end; ++i) {
    const double x = (static_cast<double>(i) - at) * narrow;
    weights.push_back(radius == 1 ? std::max(0.0, 1 - std::abs(x)) : cubic(x, a));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

AxisMap onnx_map(const Attrs& attrs, size_t axis, const Axis& a) {
  const std::string &mode = attrs.s("mode"), &nearest_mode = attrs.s("nearest_mode"),
                    &coordinates = attrs.s("coordinate_transformation_mode");
  const bool linear = mode == "linear", crops = coordinates == "tf_crop_and_resize";
  Writer writer(axis, a.in, a.out, mode != "nearest" && attrs.i("exclude_outside") != 0);
  for (int64_t o = 0; o < a.out; ++o) {
    const double place = position(coordinates, a, o), beyond = 2 * static_cast<double>(a.in) + 8;
    check(std::isfinite(place), "[Resize] element {} of axis {} lies at {}", o, axis, place);
    const double at = std::clamp(place, -beyond, beyond);  // all the same from there on
    if (crops && (at < 0 || at > static_cast<double>(a.in - 1))) {
      writer.outside();
    } else if (mode == "nearest") {
      writer.add(nearest(nearest_mode, at), {1.0});
    } else {
      const bool filtered = attrs.i("antialias") != 0;
      int64_t from = 0;
      const std::vector<double> weights =
          filter(at, filtered ? a.scale() : 1.0, linear ? 1 : 2, attrs.f("cubic_coeff_a"), from);
      writer.add(from, weights);
    }
  }
  return writer.take();
}

// --- torch ---

// Small images go to a kernel of torch's that computes places in float32 whatever the dtype, and
// takes twice the size to be a factor of 2, and the same size one of 1.
bool goes_by_places(const Attrs& attrs, const Sizes& y) {
  return attrs.s("mode") == "nearest" && y.size() == 4 && y[2] + y[3] <= 128;
}

// As torch computes them, in R: float for float32 and halves.
template <class R>
class TorchAxis {
 public:
  TorchAxis(const Attrs& attrs, int64_t in, int64_t out, double factor, bool by_places)
      : attrs_(attrs), in_(in), out_(out), corners_(word("align_corners")) {
    const bool whole = out == in || out == 2 * in;
    if (by_places && whole && word("asymmetric"))
      factor = static_cast<double>(out / std::max<int64_t>(in, 1));
    if (corners_)
      step_ = out > 1 ? static_cast<R>(in - 1) / static_cast<R>(out - 1) : R{0};
    else
      step_ = factor > 0 ? static_cast<R>(1 / factor) : static_cast<R>(in) / static_cast<R>(out);
  }

  AxisMap map(size_t axis) const {
    const std::string& mode = attrs_.s("mode");
    const bool filtered = attrs_.i("antialias") != 0;
    const bool stays = in_ == out_ && (filtered || mode == "linear");
    Writer writer(axis, in_, out_, false);
    for (int64_t o = 0; o < out_; ++o)
      if (stays)
        writer.add(o, {1.0});
      else if (mode == "nearest")
        writer.add(std::min(static_cast<int64_t>(std::floor(nearest_position(o))), in_ - 1), {1.0});
      else if (filtered)
        add_filtered(writer, o, mode == "linear" ? 1 : 2);
      else if (mode == "linear")
        add_linear(writer, o);
      else
        add_cubic(writer, o);
    return writer.take();
  }

 private:
  bool word(std::string_view mode) const {
    return attrs_.s("coordinate_transformation_mode") == mode;
  }
  R half_pixel(int64_t o) const { return step_ * (static_cast<R>(o) + R{0.5}) - R{0.5}; }
  R source(int64_t o) const { return corners_ ? step_ * static_cast<R>(o) : half_pixel(o); }
  R nearest_position(int64_t o) const {
    return word("asymmetric") ? step_ * static_cast<R>(o) : half_pixel(o) + R{0.5};
  }
  // The element at or before a position, and how far behind that it is.
  std::pair<int64_t, R> split(R at) const {
    const int64_t whole = std::min(static_cast<int64_t>(std::floor(at)), in_ - 1);
    return {whole, std::clamp(at - static_cast<R>(whole), R{0}, R{1})};
  }

  void add_linear(Writer& writer, int64_t o) const {
    const auto [whole, rest] = split(std::max(source(o), R{0}));
    writer.add(whole, {R{1} - rest, rest});
  }

  void add_cubic(Writer& writer, int64_t o) const {
    const auto [whole, t] = split(source(o));
    const auto a = static_cast<R>(attrs_.f("cubic_coeff_a"));
    writer.add(whole - 1, {cubic(t + 1, a), cubic(t, a), cubic(1 - t, a), cubic(2 - t, a)});
  }

  void add_filtered(Writer& writer, int64_t o, int64_t radius) const {
    const R wide = std::max(step_, R{1}), reach = static_cast<R>(radius) * wide;
    const R center = step_ * (static_cast<R>(o) + R{0.5}), narrow = R{1} / wide;
    const auto a = static_cast<R>(attrs_.f("cubic_coeff_a"));
    const int64_t from = std::max(static_cast<int64_t>(center - reach + R{0.5}), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(center + reach + R{0.5}), in_);
    std::vector<double> weights;
    R sum = 0;
    for (int64_t i = from; i < std::max(end, from + 1); ++i) {
      const R x = (static_cast<R>(i) - center + R{0.5}) * narrow;
      const R weight = radius == 1 ? std::max(R{0}, R{1} - std::abs(x)) : cubic(x, a);
      weights.push_back(weight);
      sum += weight;
    }
    for (double& weight : weights) weight = sum == 0 ? 0 : static_cast<R>(weight) / sum;
    writer.add(from, weights);
  }

  const Attrs& attrs_;
  int64_t in_, out_;
  bool corners_;
  R step_;  // of positions in x
};

std::vector<size_t> axes_of(const Attrs& attrs, size_t rank) {
  std::vector<size_t> axes;
  if (!attrs.has("axes"))
    for (size_t i = 0; i < rank; ++i) axes.push_back(i);
  else
    for (const int64_t axis : attrs.ints("axes"))
      axes.push_back(static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis));
  return axes;
}

// The axis whose scale is that of all axes, which keeps the aspect ratio.
size_t common_axis(const Attrs& attrs, const ResizeNumbers& n, const std::vector<size_t>& axes) {
  const bool smallest = attrs.s("keep_aspect_ratio_policy") == "not_larger";
  size_t found = 0;
  for (size_t i = 1; i < axes.size(); ++i) {
    const double own = static_cast<double>(n.sizes.at(i)) * static_cast<double>(n.x[axes[found]]),
                 other = static_cast<double>(n.sizes.at(found)) * static_cast<double>(n.x[axes[i]]);
    if (smallest ? own < other : own > other) found = i;
  }
  return found;
}

AxisMap map_of(const Attrs& attrs, const ResizeNumbers& n, const std::vector<size_t>& axes,
               size_t i, DType dtype) {
  const size_t axis = axes[i];
  const int64_t in = n.x[axis], out = n.y[axis];
  check(in > 0 || out == 0, "[Resize] axis {} of x has size 0, that of y {}", axis, out);
  if (attrs.has("torch_scales")) {
    const double factor = attrs.list<double>("torch_scales").at(i);
    const bool by_places = goes_by_places(attrs, n.y);
    if (dtype == DType::f64 && !by_places)
      return TorchAxis<double>(attrs, in, out, factor, false).map(axis);
    return TorchAxis<float>(attrs, in, out, factor, by_places).map(axis);
  }
  Axis a{in, out, static_cast<double>(out), static_cast<double>(in), 0, 1};
  if (!n.scales.empty()) {
    a.over = n.scales.at(i), a.under = 1;
  } else if (attrs.s("keep_aspect_ratio_policy") != "stretch") {
    const size_t common = common_axis(attrs, n, axes);
    a.over = static_cast<double>(n.sizes.at(common));
    a.under = static_cast<double>(n.x[axes[common]]);
  }
  if (attrs.s("coordinate_transformation_mode") == "tf_crop_and_resize")
    a.start = n.roi.at(i), a.end = n.roi.at(axes.size() + i);
  return onnx_map(attrs, axis, a);
}

}  // namespace

std::vector<AxisMap> resize_maps(const Attrs& attrs, const ResizeNumbers& numbers, DType dtype) {
  const std::vector<size_t> axes = axes_of(attrs, numbers.x.size());
  std::vector<AxisMap> maps;
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisMap map = map_of(attrs, numbers, axes, i, dtype);
    if (!map.keeps()) maps.push_back(std::move(map));
  }
  std::sort(maps.begin(), maps.end(),
            [](const AxisMap& a, const AxisMap& b) { return a.axis < b.axis; });
  return maps;
}

bool resize_moves(const Attrs& attrs) {
  return attrs.s("mode") == "nearest" &&
         attrs.s("coordinate_transformation_mode") != "tf_crop_and_resize";
}

}  // namespace ort
