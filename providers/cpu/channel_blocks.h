// Walks over values that lie as blocks of channels, [N, C / b, spatial axes.., b], and sums of
// channels there. Batch norm, reductions, pools and what cuts and joins values use them.
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

// How many channels a block has where the operand comes in blocks; else 0.
inline int64_t channel_block(const Operand& x) {
  return x.comes_blocked() ? x.layout.blocked()->channel_block() : 0;
}

// How x lies where it is blocks of channels that the kernel takes.
inline std::optional<Blocks> blocks_of(const Operand& x) {
  const int64_t lanes = channel_block(x);
  if (lanes == 0 || lanes > kMostLanes || kPiece % lanes != 0) return std::nullopt;
  if (element_count(x.sizes) == 0) return std::nullopt;
  Blocks l{x.sizes[0], x.sizes[1] / lanes, 1, lanes};
  for (size_t i = 2; i < x.sizes.size(); ++i) l.plane *= x.sizes[i];
  return l;
}

// The layout of an operand in the same blocks as x, which comes in blocks; none where it may not
// lie so. One position is row-major as well.
inline std::optional<Layout> as_blocks(const Operand& x, const Operand& other) {
  const int64_t lanes = channel_block(x);
  const Sizes& sizes = other.sizes;
  if (channel_block(other) == lanes) return other.layout;
  if (sizes.size() != x.sizes.size() || sizes[1] % lanes != 0) return std::nullopt;
  const bool one = std::all_of(sizes.begin() + 2, sizes.end(), [](int64_t n) { return n == 1; });
  if (one) return Layout();
  return other.any_layout ? x.layout.blocked()->of(sizes) : std::nullopt;
}

}  // namespace ort::cpu
