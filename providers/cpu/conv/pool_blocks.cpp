// Pooling over [N, C / b, D1..D3, b] and its gradients, where b may be all channels: one block of
// channels of one image at a time. Halves are converted a block at a time.
#include "providers/cpu/conv/pool_blocks.h"

#include <limits>

#include "providers/cpu/channel_blocks.h"
#include "providers/cpu/conv/block_rows.h"
#include "providers/cpu/conv/planes.h"
#include "providers/cpu/tile/tile.h"

namespace ort::cpu {
namespace {

// How a pool and its gradient run.
struct BlockPool {
  Planes p;
  int64_t lanes;
  Layout in, out;
  int64_t blocks() const { return p.count / lanes; }
  int64_t work() const { return p.count * p.out_size() * p.window(); }
};

// `wide` is x or dx, `narrow` what the windows count. Null where x or dy comes row-major, or what
// is made of it has to be.
std::optional<BlockPool> block_pool(const Request& r, const Operand& wide, const Operand& narrow,
                                    const Operand& made) {
  const int64_t lanes = channel_rows(r.in(0)).lanes;
  if (lanes == 0 || lanes % 4 != 0 || element_count(narrow.sizes) == 0) return std::nullopt;
  const auto layout = lying_as(r.in(0), made);
  if (!layout) return std::nullopt;
  return BlockPool{planes_of(r, wide.sizes, narrow.sizes), lanes, r.in(0).layout, *layout};
}

// `f(args, plane, from, to, spare)` over blocks of `from` and of `to` positions.
template <class F>
std::unique_ptr<Kernel> each_block(std::string name, const Request& r, const BlockPool& b,
                                   int64_t from, int64_t to, int64_t spare, F f) {
  return each_plane<float>(std::move(name), r, b.blocks(), from * b.lanes, to * b.lanes, b.work(),
                           f, spare, {b.in}, {b.out});
}

// Where windows overlap it is less work to fold the lines that a row of them meets into one first.
class Rows {
 public:
  explicit Rows(const BlockPool& b) : p_(b.p), lanes_(b.lanes) {
    for (int64_t c = 0; c < p_.out[2]; ++c) windows_.push_back(taps_of(p_, 2, c));
    const int64_t lines = std::min(p_.kernel[0], p_.in[0]) * std::min(p_.kernel[1], p_.in[1]);
    const int64_t taps = std::min(p_.kernel[2], p_.in[2]) * p_.out[2];
    folds_ = lines * p_.in[2] + taps < lines * taps;
  }
  bool folds() const { return folds_; }
  int64_t line() const { return p_.in[2] * lanes_; }
  int64_t row() const { return p_.out[2] * lanes_; }
  // Calls f(first number of y, row, taps along the first two axes) for each row of windows.
  template <class F>
  void each(F f) const {
    std::vector<int64_t> lines;
    each_row(p_, [&](int64_t at, const Taps& depth, const Taps& height) {
      lines.clear();
      each_line(p_, depth, height, [&](int64_t line) { lines.push_back(line); });
      f(at * lanes_, BlockRow{lanes_, lines, windows_, p_.dilation[2]}, depth, height);
    });
  }
  // A row over one line alone.
  BlockRow over_one() const {
    static constexpr int64_t kFirst[] = {0};
    return {lanes_, kFirst, windows_, p_.dilation[2]};
  }
  // The lines of a row folded into one.
  void fold(const TileStep<float>& step, float neutral, const BlockRow& row, const float* x,
            float* to) const {
    std::fill_n(to, line(), neutral);
    for (const int64_t from : row.lines) step(to, to, x + from * lanes_, nullptr, line());
  }
  // What each window's sum is divided by.
  void divisors(const Taps& depth, const Taps& height, float* to) const {
    const auto rows = static_cast<float>(count(depth) * count(height));
    for (const Taps& taps : windows_)
      *to++ = std::max(rows * static_cast<float>(count(taps)), 1.0f);
  }

 private:
  int64_t count(const Taps& t) const { return p_.include_pad ? t.padded : t.last - t.first; }

  Planes p_;
  int64_t lanes_;
  bool folds_;
  std::vector<Taps> windows_;
};

// Places of a row in a plane as ONNX's flat indices, channel by channel.
void write_indices(const BlockPool& b, int64_t block, int64_t at, const int32_t* places,
                   int64_t* index) {
  for (int64_t lane = 0; lane < b.lanes; ++lane) {
    const int64_t plane = block * b.lanes + lane, start = plane * b.p.in_size();
    int64_t* to = index + plane * b.p.out_size() + at;
    for (int64_t c = 0; c < b.p.out[2]; ++c) to[c] = start + places[c * b.lanes + lane];
  }
}

std::unique_ptr<Kernel> max_and_index(const Request& r, const BlockPool& b) {
  const Rows rows(b);
  if (b.p.in_size() > std::numeric_limits<int32_t>::max()) return nullptr;
  return each_block("MaxPool", r, b, b.p.in_size(), b.p.out_size(), rows.row(),
                    [=](const Args& args, int64_t block, const float* x, float* y, float* spare) {
                      auto* places = reinterpret_cast<int32_t*>(spare);
                      rows.each([&](int64_t at, const BlockRow& row, const Taps&, const Taps&) {
                        max_of_row(row, x, y ? y + at : nullptr, places);
                        write_indices(b, block, at / b.lanes, places, output<int64_t>(args, 1));
                      });
                    });
}

}  // namespace

std::unique_ptr<Kernel> max_pool_blocks(const Request& r) {
  const Operand& y = r.wants(0) ? r.out(0) : r.out(1);
  const auto found = block_pool(r, r.in(0), y, r.wants(0) ? y : r.in(0));
  if (!found) return nullptr;
  BlockPool b = *found;
  if (!r.wants(0)) b.out = {};
  if (r.wants(1)) return max_and_index(r, b);
  const Rows rows(b);
  const TileStep<float> step(TileOp::max, 0);
  return each_block("MaxPool", r, b, b.p.in_size(), b.p.out_size(), rows.line(),
                    [=](const Args&, int64_t, const float* x, float* y, float* spare) {
                      rows.each([&](int64_t at, const BlockRow& row, const Taps&, const Taps&) {
                        if (!rows.folds()) return max_of_row(row, x, y + at, nullptr);
                        rows.fold(step, -std::numeric_limits<float>::infinity(), row, x, spare);
                        max_of_row(rows.over_one(), spare, y + at, nullptr);
                      });
                    });
}

std::unique_ptr<Kernel> average_pool_blocks(const Request& r) {
  const auto found = block_pool(r, r.in(0), r.out(), r.out());
  if (!found) return nullptr;
  const Rows rows(*found);
  const Planes p = found->p;
  const TileStep<float> add(TileOp::add, 0);
  return each_block(
      "AveragePool", r, *found, p.in_size(), p.out_size(), rows.line() + p.out[2],
      [=](const Args&, int64_t, const float* x, float* y, float* spare) {
        float* divisors = spare + rows.line();
        rows.each([&](int64_t at, const BlockRow& row, const Taps& depth, const Taps& height) {
          rows.divisors(depth, height, divisors);
          if (!rows.folds()) return average_row(row, x, divisors, y + at);
          rows.fold(add, 0.0f, row, x, spare);
          average_row(rows.over_one(), spare, divisors, y + at);
        });
      });
}

std::unique_ptr<Kernel> average_pool_grad_blocks(const Request& r) {
  const auto found = block_pool(r, r.out(), r.in(0), r.out());
  if (!found) return nullptr;
  const Rows rows(*found);
  const Planes p = found->p;
  const int64_t lanes = found->lanes;
  const TileStep<float> add(TileOp::add, 0);
  return each_block(
      "AveragePoolGrad", r, *found, p.out_size(), p.in_size(), rows.line() + p.out[2],
      [=](const Args&, int64_t, const float* dy, float* dx, float* spare) {
        float* divisors = spare + rows.line();
        std::fill_n(dx, p.in_size() * lanes, 0.0f);
        rows.each([&](int64_t at, const BlockRow& row, const Taps& depth, const Taps& height) {
          rows.divisors(depth, height, divisors);
          if (!rows.folds()) return spread_row(row, dy + at, divisors, dx);
          std::fill_n(spare, rows.line(), 0.0f);
          spread_row(rows.over_one(), dy + at, divisors, spare);
          for (const int64_t line : row.lines) {
            float* to = dx + line * lanes;
            add(to, to, spare, nullptr, rows.line());
          }
        });
      });
}

// Windows stay within their plane, so blocks can be summed by different threads. Each window adds
// to other elements than the one before: lanes go first.
std::unique_ptr<Kernel> max_pool_grad_blocks(const Request& r) {
  constexpr int64_t kAtOnce = 8, kAhead = 64;  // windows; those of a cache line of each channel
  const int64_t lanes = channel_rows(r.in(0)).lanes;
  const auto layout = lying_as(r.in(0), r.out());
  if (!layout) return nullptr;
  const int64_t planes = r.sizes(0)[0] * r.sizes(0)[1];
  const int64_t in = element_count(r.out().sizes) / planes;
  const int64_t out = element_count(r.sizes(0)) / planes;
  return each_plane<float>(
      "MaxPoolGrad", r, planes / lanes, out * lanes, in * lanes, planes * (in + out),
      [=](const Args& args, int64_t block, const float* dy, float* dx, float*) {
        std::fill_n(dx, in * lanes, 0.0f);
        const int64_t first = block * lanes;
        const int64_t* index = input<int64_t>(args, 1) + first * out;
        for (int64_t begin = 0; begin < out; begin += kAtOnce) {
          for (int64_t lane = 0; lane < lanes; ++lane)
            __builtin_prefetch(index + lane * out + begin + kAhead);
          for (int64_t i = begin; i < std::min(begin + kAtOnce, out); ++i)
            for (int64_t lane = 0; lane < lanes; ++lane)
              dx[place_in_plane(index[lane * out + i], first + lane, in) * lanes + lane] +=
                  dy[i * lanes + lane];
        }
      },
      0, {r.in(0).layout}, {*layout});
}

}  // namespace ort::cpu
