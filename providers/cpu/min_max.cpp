// The smallest and the largest number of all, which are sought together in what a core has at hand.
#include <limits>

#include "csrc/core/parallel.h"
#include "providers/cpu/provider.h"
#include "providers/cpu/tile/tile.h"
#include "providers/tile/scalar.h"

namespace ort::cpu {
namespace {

constexpr int64_t kMinMaxPiece = 4096;

TileArgs row(float* result, const float* x, int64_t count) {
  TileArgs t{};
  t.dst = result;
  t.a = x;
  t.count = count;
  return t;
}

std::unique_ptr<Kernel> min_max(const Request& r) {
  const int64_t count = element_count(r.sizes(0)),
                pieces = (count + kMinMaxPiece - 1) / kMinMaxPiece;
  const TileFunction lowest = tile_function(TileOp::row_min, 0),
                     highest = tile_function(TileOp::row_max, 0);
  return make_kernel(
      "MinMax",
      [=](const Args& args) {
        float* found = static_cast<float*>(args.scratch);
        parallel_for(pieces, 2 * count, [&](int64_t begin, int64_t end, int) {
          for (int64_t p = begin; p < end; ++p) {
            const float* x = input<float>(args, 0) + p * kMinMaxPiece;
            const int64_t there = std::min(kMinMaxPiece, count - p * kMinMaxPiece);
            lowest(row(found + 2 * p, x, there));
            highest(row(found + 2 * p + 1, x, there));
          }
        });
        float low = std::numeric_limits<float>::infinity(), high = -low;
        for (int64_t p = 0; p < pieces; ++p) {
          low = tile::scalar::min(low, found[2 * p]);
          high = tile::scalar::max(high, found[2 * p + 1]);
        }
        *output<float>(args, 0) = low;
        *output<float>(args, 1) = high;
      },
      static_cast<size_t>(2 * pieces) * sizeof(float));
}

}  // namespace

static void register_min_max(KernelTable& table) {
  table.op("ort::MinMax").add("pieces", kF32, min_max);
}

const Family<KernelTable> kMinMaxKernels("cpu", "min_max", register_min_max);

}  // namespace ort::cpu
