// Walks over values whose channels lie in rows, [N, C / b, spatial axes.., b], where b may be all
// of them, and sums of channels over blocks. Batch norm, reductions, pools and what cuts and joins
// values use them.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "providers/cpu/runs.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {

constexpr int64_t kPiece = 1024, kMostLanes = 64;

using Piece = std::array<float, kPiece>;
using Lanes = std::array<double, kMostLanes>;  // a number for each channel of a block

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
    for (int64_t c = 0; c < l_.lanes; ++c)
      total_[static_cast<size_t>(c)] += cells_[static_cast<size_t>(c)];
    std::fill_n(cells_.data(), l_.width(), 0.0f);
    pieces_ = 0;
  }

  const Blocks& l_;
  const Steps& steps_;
  Piece cells_{};
  int64_t pieces_ = 0;
  Lanes total_{};
};

// How the channels of an operand lie: so many side by side, in blocks or `last` where it is all.
struct ChannelRows {
  int64_t lanes = 0;  // 0: it comes row-major
  bool last = false;
  explicit operator bool() const { return lanes > 0; }
  // As another value's do, whose channels may be more or fewer.
  bool like(const ChannelRows& other) const {
    return lanes > 0 && last == other.last && (last || lanes == other.lanes);
  }
};

inline ChannelRows channel_rows(const Operand& x) {
  if (!x.comes_blocked()) return {};
  return {x.layout.blocked()->channels_in_row(), x.layout.blocked()->channels_last()};
}

// How x lies where it is blocks of channels that the kernel takes.
inline std::optional<Blocks> blocks_of(const Operand& x) {
  const auto [lanes, last] = channel_rows(x);
  if (last || lanes == 0 || lanes > kMostLanes || kPiece % lanes != 0) return std::nullopt;
  if (element_count(x.sizes) == 0) return std::nullopt;
  Blocks l{x.sizes[0], x.sizes[1] / lanes, 1, lanes};
  for (size_t i = 2; i < x.sizes.size(); ++i) l.plane *= x.sizes[i];
  return l;
}

// The layout of an operand whose channels lie as those of x, which does not come row-major; none
// where it may not lie so. One position is row-major as well.
inline std::optional<Layout> lying_as(const Operand& x, const Operand& other) {
  const ChannelRows rows = channel_rows(x);
  const Sizes& sizes = other.sizes;
  if (!rows) return std::nullopt;
  if (channel_rows(other).like(rows)) return other.layout;
  if (sizes.size() != x.sizes.size() || (!rows.last && sizes[1] % rows.lanes != 0))
    return std::nullopt;
  const bool one = std::all_of(sizes.begin() + 2, sizes.end(), [](int64_t n) { return n == 1; });
  if (one) return Layout();
  return other.any_layout ? x.layout.blocked()->of(sizes) : std::nullopt;
}

}  // namespace ort::cpu
