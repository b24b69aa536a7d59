// Written once with Highway and compiled for each vector target.
#include "csrc/core/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/conv/block_rows.cpp"
#include <limits>
#include "hwy/foreach_target.h"

// After foreach_target, as Highway wants it.
#include "hwy/highway.h"
#include "providers/cpu/conv/block_rows.h"

HWY_BEFORE_NAMESPACE();
namespace ort::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(vectors, window, its first number of y) along a row, for each vector of a block.
template <class D, class F>
HWY_INLINE void each_window(const D& d, const BlockRow& row, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (size_t c = 0; c < row.windows.size(); ++c)
    for (int64_t v = 0; v < row.lanes; v += lanes)
      f(row.windows[c], v, static_cast<int64_t>(c) * row.lanes + v);
}

// How many blocks of a line are fetched before they are read: a processor follows no windows that
// jump from line to line.
constexpr int64_t kAhead = 16;

// Calls f(first block, its position) for each line that a window has taps on: `plane` is the first
// number of the lanes.
template <class T, class F>
HWY_INLINE void each_line(const BlockRow& row, const Taps& taps, T* plane, F f) {
  const int64_t first = taps.start + taps.first * row.dilation;
  for (const int64_t line : row.lines) f(plane + (line + first) * row.lanes, line + first);
}

// And for each tap from there.
template <class T, class F>
HWY_INLINE void along(const BlockRow& row, const Taps& taps, T* block, int64_t position, F f) {
  const int64_t count = taps.last - taps.first, step = row.dilation * row.lanes;
  for (int64_t k = 0; k < count; ++k, block += step, position += row.dilation) {
    __builtin_prefetch(block + kAhead * row.lanes);
    f(block, position);
  }
}

template <class T, class F>
HWY_INLINE void each_tap(const BlockRow& row, const Taps& taps, T* plane, F f) {
  each_line(row, taps, plane,
            [&](T* block, int64_t position) HWY_ATTR { along(row, taps, block, position, f); });
}

template <class D>
HWY_INLINE void max_alone(const D& d, const BlockRow& row, const float* x, float* y) {
  each_window(d, row, [&](const Taps& taps, int64_t lane, int64_t at) HWY_ATTR {
    auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
    each_tap(row, taps, x + lane, [&](const float* block, int64_t) HWY_ATTR {
      const auto value = hn::LoadU(d, block);
      best = hn::IfThenElse(hn::Or(hn::Gt(value, best), hn::IsNaN(value)), value, best);
    });
    hn::StoreU(best, d, y + at);
  });
}

template <class D>
HWY_INLINE void max_and_place(const D& d, const BlockRow& row, const float* x, float* y,
                              int32_t* place) {
  const hn::RebindToSigned<D> di;
  each_window(d, row, [&](const Taps& taps, int64_t lane, int64_t at) HWY_ATTR {
    auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
    const bool any = !row.lines.empty() && taps.first < taps.last;
    const int64_t first = any ? row.lines[0] + taps.start + taps.first * row.dilation : -1;
    auto where = hn::Set(di, static_cast<int32_t>(first));
    each_tap(row, taps, x + lane, [&](const float* block, int64_t position) HWY_ATTR {
      const auto value = hn::LoadU(d, block);
      const auto taken = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
      const auto here = hn::Set(di, static_cast<int32_t>(position));
      best = hn::IfThenElse(taken, value, best);
      where = hn::IfThenElse(hn::RebindMask(di, taken), here, where);
    });
    if (y) hn::StoreU(best, d, y + at);
    hn::StoreU(where, di, place + at);
  });
}

template <class D>
HWY_INLINE void average(const D& d, const BlockRow& row, const float* x, const float* divisors,
                        float* y) {
  each_window(d, row, [&](const Taps& taps, int64_t lane, int64_t at) HWY_ATTR {
    auto sum = hn::Zero(d);
    each_line(row, taps, x + lane, [&](const float* first, int64_t position) HWY_ATTR {
      auto part = hn::Zero(d);  // of few terms: so is the rounding error
      along(row, taps, first, position, [&](const float* block, int64_t) HWY_ATTR {
        part = hn::Add(part, hn::LoadU(d, block));
      });
      sum = hn::Add(sum, part);
    });
    hn::StoreU(hn::Div(sum, hn::Set(d, divisors[at / row.lanes])), d, y + at);
  });
}

template <class D>
HWY_INLINE void spread(const D& d, const BlockRow& row, const float* dy, const float* divisors,
                       float* dx) {
  each_window(d, row, [&](const Taps& taps, int64_t lane, int64_t at) HWY_ATTR {
    const auto share = hn::Div(hn::LoadU(d, dy + at), hn::Set(d, divisors[at / row.lanes]));
    each_tap(row, taps, dx + lane, [&](float* block, int64_t) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, block), share), d, block);
    });
  });
}

// Calls f(d): whole vectors where they fit a block, else four lanes.
template <class F>
HWY_INLINE void with_vectors(int64_t lanes, F f) {
  const hn::ScalableTag<float> d;
  if (lanes % static_cast<int64_t>(hn::Lanes(d)) == 0)
    f(d);
  else
    f(hn::CappedTag<float, 4>());
}

void max_of_row(const BlockRow& row, const float* x, float* y, int32_t* place) {
  with_vectors(row.lanes, [&](const auto& d) HWY_ATTR {
    if (place)
      max_and_place(d, row, x, y, place);
    else
      max_alone(d, row, x, y);
  });
}
void average_row(const BlockRow& row, const float* x, const float* divisors, float* y) {
  with_vectors(row.lanes, [&](const auto& d) HWY_ATTR { average(d, row, x, divisors, y); });
}
void spread_row(const BlockRow& row, const float* dy, const float* divisors, float* dx) {
  with_vectors(row.lanes, [&](const auto& d) HWY_ATTR { spread(d, row, dy, divisors, dx); });
}

}  // namespace
}  // namespace ort::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ort::cpu {
HWY_EXPORT(max_of_row);
HWY_EXPORT(average_row);
HWY_EXPORT(spread_row);

void max_of_row(const BlockRow& row, const float* x, float* y, int32_t* place) {
  HWY_DYNAMIC_DISPATCH(max_of_row)(row, x, y, place);
}
void average_row(const BlockRow& row, const float* x, const float* divisors, float* y) {
  HWY_DYNAMIC_DISPATCH(average_row)(row, x, divisors, y);
}
void spread_row(const BlockRow& row, const float* dy, const float* divisors, float* dx) {
  HWY_DYNAMIC_DISPATCH(spread_row)(row, dy, divisors, dx);
}
}  // namespace ort::cpu
#endif
