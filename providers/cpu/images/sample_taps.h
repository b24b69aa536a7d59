// Which elements of a plane positions read, and how much of each.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace ort::cpu {

struct SampleRule {
  enum class Mode : uint8_t { linear, nearest, cubic } mode = Mode::linear;
  enum class Padding : uint8_t { zeros, border, reflection } padding = Padding::zeros;
  bool align_corners = false, in_elements = false;
  int axes = 2;                 // up to kMostAxes
  int64_t size[3] = {1, 1, 1};  // of X, by axis
  static constexpr int kMostAxes = 3;

  int along() const { return mode == Mode::cubic ? 4 : mode == Mode::linear ? 2 : 1; }
  int taps() const {  // of a position
    int all = 1;
    for (int d = 0; d < axes; ++d) all *= along();
    return all;
  }
  int64_t stride(int axis) const {  // in elements of a plane
    int64_t all = 1;
    for (int d = axis + 1; d < axes; ++d) all *= size[d];
    return all;
  }
  int64_t plane() const { return size[0] * stride(0); }
};

// Of a chunk of positions, by tap and position: each plane of an image is read the same way.
template <class T>
struct SampleTaps {
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

  SampleRule rule;
  int taps;
  int64_t room, count = 0;  // positions that a chunk can have, and has
  // [taps, room]: offsets in a plane, -1 outside, and weights.
  std::vector<Index> offsets;
  std::vector<T> weights;
  // By axis, [axes, along, room]: weights, and how these change with the grid's number.
  std::vector<T> axis_weights, slopes;

  // Slopes are for `turn` alone.
  SampleTaps(const SampleRule& rule, bool with_slopes);
  // Those of positions whose numbers lie side by side.
  void find(const T* grid, int64_t positions);
  // y[p] = the sum of what position p reads of a plane.
  void read(const T* plane, T* y) const;
  // Each dy at what its position reads, added to a plane.
  void scatter(const T* dy, T* plane) const;
  // Adds dy[p] * what position p reads, apart by tap: `by_tap` has taps * room numbers.
  void weigh(const T* plane, const T* dy, T* by_tap) const;
  // The gradient of the grid's numbers, of such sums.
  void turn(const T* by_tap, T* dgrid) const;
};

}  // namespace ort::cpu
