// Sums of channels that lie in blocks: the bias gradient of a convolution.
#include "providers/cpu/reduce_blocks.h"
#include "csrc/core/parallel.h"
#include "providers/cpu/channel_blocks.h"

namespace ort::cpu {

std::unique_ptr<Kernel> sum_of_blocks(const Request& r) {
  const auto found = blocks_of(r.in(0));
  if (!found) return nullptr;
  const Blocks l = *found;
  const Steps steps;
  const Runs<float> runs(r, 0);
  const auto run = [=](const Args& args) {
    parallel_for(l.blocks, l.total(), [&](int64_t begin, int64_t end, int) {
      Piece piece;
      for (int64_t block = begin; block < end; ++block) {
        Sums sum(l, steps);
        l.pieces(block, [&](int64_t at, int64_t n) {
          sum.add(runs.read(args.in[0], at, n, piece.data()), n);
        });
        const Lanes sums = sum.total();
        for (int64_t lane = 0; lane < l.lanes; ++lane)
          runs.put(sums[static_cast<size_t>(lane)], args.out[0], block * l.lanes + lane);
      }
    });
  };
  return make_kernel("ReduceSum", run, {r.in(0).layout}, {});
}

}  // namespace ort::cpu
