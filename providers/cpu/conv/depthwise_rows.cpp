// Written once with Highway and compiled for each vector target. A tap has one accumulator.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/conv/depthwise_rows.cpp"
#include <algorithm>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/conv/depthwise_rows.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Windows [first, last) have every tap inside the row.
struct Inside {
  int64_t first, last;
};

Inside inside_of(const DepthwiseRow& row) {
  const int64_t first = std::min(row.out, (row.before + row.stride - 1) / row.stride);
  const int64_t room = row.in - 1 - (row.taps - 1) * row.dilation + row.before;
  const int64_t last = room < 0 ? 0 : room / row.stride + 1;
  return {first, std::max(first, std::min(row.out, last))};
}

template <int kTaps, class D>
HWY_INLINE void add_vector(const D& d, const DepthwiseRow& row, const float* x, const float* dy,
                           float* sums) {
  hn::Vec<D> total[kTaps];
  for (int k = 0; k < kTaps; ++k) total[k] = hn::LoadU(d, sums + k * row.lanes);
  const auto at_edge = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t o = begin; o < end; ++o) {
      const auto slope = hn::LoadU(d, dy + o * row.pitch);
      for (int k = 0; k < kTaps; ++k) {
        const int64_t at = o * row.stride + k * row.dilation - row.before;
        if (at >= 0 && at < row.in)
          total[k] = hn::MulAdd(slope, hn::LoadU(d, x + at * row.pitch), total[k]);
      }
    }
  };
  const Inside inside = inside_of(row);
  at_edge(0, inside.first);
  for (int64_t o = inside.first; o < inside.last; ++o) {
    const auto slope = hn::LoadU(d, dy + o * row.pitch);
    const float* from = x + (o * row.stride - row.before) * row.pitch;
    for (int k = 0; k < kTaps; ++k)
      total[k] = hn::MulAdd(slope, hn::LoadU(d, from + k * row.dilation * row.pitch), total[k]);
  }
  at_edge(inside.last, row.out);
  for (int k = 0; k < kTaps; ++k) hn::StoreU(total[k], d, sums + k * row.lanes);
}

template <int kTaps>
void add_row_of(const DepthwiseRow& row, const float* x, const float* dy, float* sums) {
  const auto add = [&](const auto& d) HWY_ATTR {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t v = 0; v < row.lanes; v += lanes)
      add_vector<kTaps>(d, row, x + v, dy + v, sums + v);
  };
  if (row.lanes == 16)
    add(hn::CappedTag<float, 16>());
  else
    add(hn::CappedTag<float, 8>());
}

void add_row(const DepthwiseRow& row, const float* x, const float* dy, float* sums) {
  using Add = void (*)(const DepthwiseRow&, const float*, const float*, float*);
  constexpr Add kAdd[kMostTaps] = {add_row_of<1>, add_row_of<2>, add_row_of<3>, add_row_of<4>,
                                   add_row_of<5>, add_row_of<6>, add_row_of<7>};
  kAdd[row.taps - 1](row, x, dy, sums);
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(add_row);

void add_depthwise_row(const DepthwiseRow& row, const float* x, const float* dy, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_row)(row, x, dy, sums);
}
}  // namespace ort::cpu
#endif
