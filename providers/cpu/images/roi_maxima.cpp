// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/images/roi_maxima.cpp"
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include <algorithm>

#include "hwy/highway.h"
#include "providers/cpu/images/roi_maxima.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes are channels, up to as many as a vector has.
template <class T, bool kPlaces>
class Block {
 public:
  using D = hn::ScalableTag<T>;
  using Place = hwy::MakeSigned<T>;

  explicit Block(const RoiMaxima<T>& m)
      : m_(m),
        values_(m.columns.size() * kLanes),
        weights_(kPlaces ? values_.size() : 0),
        places_(weights_.size()) {
    for (Line& line : lines_) line.numbers.resize(m.places.size() * kLanes);
  }

  // Calls f(bin, first) for each bin, where `first` is its first channel's number here, or -1 where
  // it has no sample.
  template <class F>
  HWY_INLINE void each_bin(const T* x, int64_t channels, F f) {
    x_ = x;
    channels_ = channels;
    for (Line& line : lines_) line.row = -1;
    int64_t bin = 0;
    for (const auto& samples : m_.rows.bins) {
      for (const RoiSample& row : samples) take(row, &row == samples.data());
      for (size_t column = 0; column < m_.columns.size(); ++column) {
        const bool none = samples.empty() || m_.columns[column].empty();
        f(bin++, none ? -1 : static_cast<int64_t>(column * kLanes));
      }
    }
  }
  T value(int64_t at) const { return values_[static_cast<size_t>(at)]; }
  T weight(int64_t at) const { return weights_[static_cast<size_t>(at)]; }
  int64_t place(int64_t at) const { return places_[static_cast<size_t>(at)]; }

  static constexpr size_t kLanes = hn::MaxLanes(D());

 private:
  using V = hn::Vec<D>;
  // A row of the map, a vector of channels for each column that is read.
  struct Line {
    int64_t row;
    std::vector<T> numbers;
  };
  struct Largest {
    V value, weight;
    hn::Vec<hn::RebindToSigned<D>> place;
  };

  // Neighbours are an even and an odd row, so that each row is brought once.
  const T* line(int64_t row) {
    Line& line = lines_[row % 2];
    if (line.row == row) return line.numbers.data();
    line.row = row;
    for (int64_t c = 0; c < channels_; ++c) {
      const T* from = x_ + c * m_.plane + row * m_.width;
      T* to = line.numbers.data() + c;
      for (const int64_t place : m_.places) {
        *to = from[place];
        to += kLanes;
      }
    }
    return line.numbers.data();
  }

  HWY_INLINE Largest corner(const T* line, int64_t row, int64_t column, double weight) const {
    const D d;
    const V by = hn::Set(d, static_cast<T>(weight));
    const V x = hn::LoadU(d, line + column * static_cast<int64_t>(kLanes));
    const int64_t place = row * m_.width + m_.places[static_cast<size_t>(column)];
    return {hn::Mul(by, x), by, hn::Set(hn::RebindToSigned<D>(), static_cast<Place>(place))};
  }
  HWY_INLINE void join(const Largest& other, Largest* best) const {
    const auto worse = hn::Or(hn::Le(other.value, best->value), hn::IsNaN(best->value));
    best->value = hn::IfThenElse(worse, best->value, other.value);
    if constexpr (kPlaces) {
      const hn::RebindToSigned<D> di;
      best->weight = hn::IfThenElse(worse, best->weight, other.weight);
      best->place = hn::IfThenElse(hn::RebindMask(di, worse), best->place, other.place);
    }
  }

  // The corners of a row of samples, in all bins beside each other.
  HWY_INLINE void take(const RoiSample& row, bool first) {
    const T *low = line(row.low), *high = line(row.high);
    for (size_t bin = 0; bin < m_.columns.size(); ++bin) {
      const auto& samples = m_.columns[bin];
      if (samples.empty()) continue;
      const auto& one = samples.front();
      Largest best = first ? corner(low, row.low, one.left, row.by_low * one.by_left) : load(bin);
      for (const auto& column : samples) {
        join(corner(low, row.low, column.left, row.by_low * column.by_left), &best);
        join(corner(low, row.low, column.right, row.by_low * column.by_right), &best);
        join(corner(high, row.high, column.left, row.by_high * column.by_left), &best);
        join(corner(high, row.high, column.right, row.by_high * column.by_right), &best);
      }
      store(best, bin);
    }
  }

  HWY_INLINE Largest load(size_t bin) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const V value = hn::LoadU(d, values_.data() + bin * kLanes);
    if constexpr (!kPlaces) return {value, value, hn::Zero(di)};
    return {value, hn::LoadU(d, weights_.data() + bin * kLanes),
            hn::LoadU(di, places_.data() + bin * kLanes)};
  }
  HWY_INLINE void store(const Largest& best, size_t bin) {
    const D d;
    hn::StoreU(best.value, d, values_.data() + bin * kLanes);
    if constexpr (kPlaces) {
      hn::StoreU(best.weight, d, weights_.data() + bin * kLanes);
      hn::StoreU(best.place, hn::RebindToSigned<D>(), places_.data() + bin * kLanes);
    }
  }

  const RoiMaxima<T>& m_;
  const T* x_ = nullptr;
  int64_t channels_ = 0;
  Line lines_[2];
  // By bin of a row and channel, the largest corners so far; without places the values alone.
  std::vector<T> values_, weights_;
  std::vector<Place> places_;
};

// Calls f(block, its number there or -1, channel, bin) for each bin of each channel.
template <bool kPlaces, class T, class F>
HWY_INLINE void each(const RoiMaxima<T>& m, const T* x, int64_t channels, F f) {
  Block<T, kPlaces> block(m);
  const auto lanes = static_cast<int64_t>(block.kLanes);
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t some = std::min(lanes, channels - c);
    block.each_bin(x + c * m.plane, some, [&](int64_t bin, int64_t first) {
      for (int64_t i = 0; i < some; ++i) f(block, first < 0 ? -1 : first + i, c + i, bin);
    });
  }
}

template <class T>
HWY_INLINE void take_values(const RoiMaxima<T>& m, const T* x, int64_t channels, T* y) {
  const int64_t bins = m.bins();
  each<false>(m, x, channels, [=](const auto& block, int64_t at, int64_t channel, int64_t bin) {
    y[channel * bins + bin] = at < 0 ? T{} : block.value(at);
  });
}

template <class T>
HWY_INLINE void scatter_values(const RoiMaxima<T>& m, const T* x, const T* dy, int64_t channels,
                               T* dx) {
  const int64_t bins = m.bins();
  each<true>(m, x, channels, [&](const auto& block, int64_t at, int64_t channel, int64_t bin) {
    if (at >= 0)
      dx[channel * m.plane + block.place(at)] += block.weight(at) * dy[channel * bins + bin];
  });
}

void take_floats(const RoiMaxima<float>& m, const float* x, int64_t channels, float* y) {
  take_values(m, x, channels, y);
}
void take_doubles(const RoiMaxima<double>& m, const double* x, int64_t channels, double* y) {
  take_values(m, x, channels, y);
}
void scatter_floats(const RoiMaxima<float>& m, const float* x, const float* dy, int64_t channels,
                    float* dx) {
  scatter_values(m, x, dy, channels, dx);
}
void scatter_doubles(const RoiMaxima<double>& m, const double* x, const double* dy,
                     int64_t channels, double* dx) {
  scatter_values(m, x, dy, channels, dx);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(take_floats);
HWY_EXPORT(take_doubles);
HWY_EXPORT(scatter_floats);
HWY_EXPORT(scatter_doubles);

template <class T>
RoiMaxima<T>::RoiMaxima(const RoiAxis& rows, const RoiAxis& columns, int64_t width, int64_t plane)
    : rows(rows), width(width), plane(plane), columns(columns.bins.size()) {
  for (const auto& bin : columns.bins)
    for (const RoiSample& sample : bin) places.insert(places.end(), {sample.low, sample.high});
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const auto among = [&](int64_t place) {
    return std::lower_bound(places.begin(), places.end(), place) - places.begin();
  };
  for (size_t bin = 0; bin < columns.bins.size(); ++bin)
    for (const RoiSample& s : columns.bins[bin])
      this->columns[bin].push_back({among(s.low), among(s.high), s.by_low, s.by_high});
}

template <class T>
void RoiMaxima<T>::take(const T* x, int64_t channels, T* y) const {
  if constexpr (sizeof(T) == 4)
    HWY_DYNAMIC_DISPATCH(take_floats)(*this, x, channels, y);
  else
    HWY_DYNAMIC_DISPATCH(take_doubles)(*this, x, channels, y);
}

template <class T>
void RoiMaxima<T>::scatter(const T* x, const T* dy, int64_t channels, T* dx) const {
  if constexpr (sizeof(T) == 4)
    HWY_DYNAMIC_DISPATCH(scatter_floats)(*this, x, dy, channels, dx);
  else
    HWY_DYNAMIC_DISPATCH(scatter_doubles)(*this, x, dy, channels, dx);
}

template struct RoiMaxima<float>;
template struct RoiMaxima<double>;
}  // namespace ort::cpu
#endif
